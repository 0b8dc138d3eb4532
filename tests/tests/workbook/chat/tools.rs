//! Tools that are derived from functions.

use challenges::issues::chat::Tool;
use serde_json::json;

challenges::tool! {
    /// Adds numbers.
    fn add(
        /// The numbers to add.
        numbers: Vec<f64>,
        /// How many digits to keep.
        digits: Option<u32>,
    ) -> String {
        let sum: f64 = numbers.iter().sum();
        format!("{sum:.*}", digits.unwrap_or(0) as usize)
    }
}

#[test]
fn a_function_is_a_tool_with_a_schema() {
    let parameters = json!({
        "type": "object",
        "properties": {
            "numbers": {"type": "array", "items": {"type": "number"}, "description": "The numbers to add."},
            "digits": {"type": "integer", "nullable": true, "description": "How many digits to keep."},
        },
        "required": ["numbers"],
    });
    let function = json!({"name": "add", "description": "Adds numbers.", "parameters": parameters});
    let want = json!({"type": "function", "function": function});
    assert_eq!(serde_json::to_value(add::tool()).expect("a tool is JSON"), want);
    assert_eq!(serde_json::from_value::<Tool>(want).expect("and JSON is a tool"), add::tool());
    assert_eq!(add::call(vec![1.0, 2.5], Some(1)), "3.5");
}
