//! Templates that would panic, hang or grow: each ends with an error of its kind.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use challenges::issues::chat::{Kind, Limits, Options};
use serde_json::{Value, json};

use super::{options, render, render_with};

/// Fewer steps and bytes than by default, so that the tests are quick.
fn small() -> Options {
    let limits = Limits { steps: 200_000, work_bytes: 32 << 20, output_bytes: 1 << 20, ..Limits::default() };
    Options { limits, ..options() }
}

#[track_caller]
fn ends(source: &str, want: Kind) {
    let start = Instant::now();
    let got = render_with(source, &json!({"v": [1, 2]}), small()).expect_err("the template has no end");
    assert_eq!(got.kind, want, "{}: {got}", &source[..source.len().min(120)]);
    assert!(
        start.elapsed() < Duration::from_secs(20),
        "{} took {:?}",
        &source[..source.len().min(120)],
        start.elapsed()
    );
}

#[test]
fn loops_end() {
    let nested = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}";
    ends(nested, Kind::Limit);
    ends(
        "{% for a in range(99999) %}{% for b in range(99999) %}long text again and again{% endfor %}{% endfor %}",
        Kind::Limit,
    );
    ends("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", Kind::Limit);
    ends("{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}", Kind::Limit);
    ends("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", Kind::Limit);
    ends(
        "{% set x %}{% for a in range(99999) %}{{ 'some text ' * 100000 }}{% endfor %}{% endset %}",
        Kind::Limit,
    );
}

#[test]
fn values_do_not_grow_without_end() {
    let doubling = "{% set ns = namespace(s='abc') %}{% for i in range(99999) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}";
    ends(doubling, Kind::Limit);
    ends(&doubling.replace("ns.s ~ ns.s", "ns.s + ns.s"), Kind::Limit);
    ends(&doubling.replace("ns.s ~ ns.s", "[ns.s, ns.s]"), Kind::Limit);
    ends(&doubling.replace("ns.s ~ ns.s", "{'a': ns.s}"), Kind::Limit);
    ends(&doubling.replace("ns.s ~ ns.s", "[ns.s]|map('list')"), Kind::Limit);
    ends(&doubling.replace("ns.s ~ ns.s", "ns.s.replace('', ns.s)"), Kind::Limit);
    for huge in [
        "'a' * 10000000000",
        "[1] * 10000000000",
        "'a'|center(10000000000)",
        "'a\nb'|indent(10000000000)",
        "'%10000000000d' % 1",
        "'%1000000000d' % 1",
        "'{:1000000000}'.format(1)",
        "'{:.1000000000f}'.format(1.5)",
        "'a'.ljust(10000000000)",
        "'1'.zfill(10000000000)",
        "'\t'.expandtabs(10000000000)",
        "v|tojson(indent=10000000000)",
        "v|batch(10000000000, 1)|list",
        "v|slice(10000000000)|list",
        "'%.*f' % (1000000000, 1.5)",
    ] {
        let got = render_with(&format!("{{{{ {huge} }}}}"), &json!({"v": [1]}), small()).expect_err(huge);
        assert!(matches!(got.kind, Kind::Limit | Kind::Value), "{huge}: {got}");
    }
}

#[test]
fn reading_much_again_and_again_ends() {
    let long =
        "{% set s = 'a' * 1000000 %}{% set l = [1] * 100000 %}{% set n = [1] * 100000 %}{% set d = {s: 1} %}";
    for once in [
        "s[-1]",
        "s|length",
        "'b' in s",
        "l == n",
        "2 in l",
        "s[:1]",
        "s.find('b')",
        "d[s]",
        "s ~ 'x' == s ~ 'y'",
        "s|int",
        "l|first",
        "s|list|length",
        "l|sort|first",
        "[s, s, s, s]|sort|first",
        "s is upper",
    ] {
        ends(
            &format!("{long}{{% for i in range(99999) %}}{{% set x = {once} %}}{{% endfor %}}"),
            Kind::Limit,
        );
    }
}

#[test]
fn what_is_shared_a_thousand_times_is_not_walked_for_ever() {
    let shared = |name: &str| {
        format!(
            "{{% set {name} = namespace(t=()) %}}{{% for i in range(45) %}}{{% set {name}.t = ({name}.t, {name}.t) %}}{{% endfor %}}"
        )
    };
    let both = shared("ns") + &shared("other");
    for walk in [
        "{ns.t: 1}|length",
        "dict([(ns.t, 1)])|length",
        "[ns.t, ns.t]|unique|list|length",
        "[ns.t, other.t]|groupby(0)|list|length",
        "ns",
        "ns.t == other.t",
        "[ns.t, other.t]|sort|length",
        "ns.t in [other.t]",
        "ns.t|tojson",
    ] {
        ends(&format!("{both}{{{{ {walk} }}}}"), Kind::Limit);
    }
}

#[test]
fn what_has_no_order_is_sorted_or_refused() {
    let numbers: Vec<String> =
        (0..90).map(|at| if at * 7 % 10 < 3 { "n".into() } else { (at * 37 % 91).to_string() }).collect();
    let of_numbers =
        |sort: &str| format!("{{% set n = 'nan'|float %}}{{{{ [{}]|{sort} }}}}", numbers.join(", "));
    for sort in ["sort|length", "sort(reverse=true)|length", "unique|list|length"] {
        assert!(render(&of_numbers(sort), &json!({})).is_ok(), "{sort}");
    }
    let keys: Vec<String> = (0..60)
        .map(|at| match at % 5 {
            0 => format!("'k{at}': 1"),
            1 if at == 31 => "none: 1".into(),
            _ => format!("{}: 1", at * 7919 % 1000),
        })
        .collect();
    let source = format!("{{{{ {{{}}}|tojson(sort_keys=true) }}}}", keys.join(", "));
    assert_eq!(render(&source, &json!({})).map_err(|error| error.kind), Err(Kind::Type));
}

#[test]
fn a_number_is_written_with_as_many_digits_as_are_asked_for() {
    for (source, want) in [
        ("{{ ('%.99999f' % 5)|length }}", "100001"),
        ("{{ '{:.70000f}'.format(5.0)|length }}", "70002"),
        ("{{ ('%.70000e' % 0.1)|length }}", "70006"),
        ("{{ ('%#.70000g' % 0.1)|length }}", "70002"),
        ("{{ ('%.3000f' % 0.1)[:12] }}", "0.1000000000"),
    ] {
        assert_eq!(render(source, &json!({})).as_deref(), Ok(want), "{source}");
    }
    let wide = render("{{ '%*d' % (2**70, 5) }}", &json!({}));
    assert_eq!(wide.map_err(|error| error.kind), Err(Kind::Overflow));
    assert!(render("{{ 'abc'|truncate(-(2**126)*2) }}", &json!({})).is_err());
}

#[test]
fn a_chain_of_namespaces_ends_with_the_render() {
    let chain = "{% set ns = namespace() %}{% for i in range(9999) %}{% set ns.x = namespace(x=ns.x) %}{% endfor %}{% set ns.me = ns %}ok";
    assert_eq!(render(chain, &json!({})).as_deref(), Ok("ok"));
}

#[test]
fn macros_that_call_each_other_end_before_the_stack_does() {
    let nest = |inner: &str| format!("{}{inner}{}", "{% if 1 %}".repeat(50), "{% endif %}".repeat(50));
    let deep = format!("{{% macro m() %}}{}{{% endmacro %}}{{{{ m() }}}}", nest("{{ [[[[m()]]]] }}"));
    let again = format!("{{% for x in [1] recursive %}}{}{{% endfor %}}", nest("{{ [[loop([1])]] }}"));
    for source in [
        deep.as_str(),
        &again,
        "{% macro m() %}{{ caller }}{% call m() %}{% endcall %}{% endmacro %}{{ m() }}",
    ] {
        let source = source.to_string();
        let small_stack = std::thread::Builder::new().stack_size(2 << 20);
        let work = small_stack.spawn(move || ends(&source, Kind::Limit)).expect("a thread starts");
        work.join().expect("the stack is large enough");
    }
}

#[test]
fn a_macro_is_not_called_where_its_definition_has_ended() {
    let source = "{% set ns = namespace() %}{% macro outer(a) %}{% macro inner() %}{{ a }}{% endmacro %}\
                  {% set ns.kept = inner %}{{ inner() }}{% endmacro %}{{ outer(1) }}{{ outer(2) }}{{ ns.kept() }}";
    ends(source, Kind::Unsupported);
    let inside = source.replace("{{ ns.kept() }}", "");
    assert_eq!(render(&inside, &json!({})).as_deref(), Ok("12"));
}

#[test]
fn many_names_and_pieces_compile_soon() {
    let start = Instant::now();
    for source in [
        (0..30_000).map(|at| format!("{{% set n{at} = 1 %}}")).collect::<Vec<_>>().concat(),
        (0..60_000).map(|at| format!("{{{{ n{at} }}}}")).collect::<Vec<_>>().concat(),
        "{{ 'a' }}".repeat(100_000),
    ] {
        let _ = render(&source, &json!({}));
    }
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[test]
fn a_loop_is_not_kept() {
    ends("{% set ns = namespace() %}{% for x in v %}{% set ns.x = loop %}{% endfor %}", Kind::Unsupported);
    ends("{% for x in v %}{{ [loop] }}{% endfor %}", Kind::Unsupported);
    ends("{% for x in v %}{{ loop.changed(loop) }}{% endfor %}", Kind::Unsupported);
}

#[test]
fn nested_source_is_refused_before_it_runs_the_stack_out() {
    for (before, inner, after) in [
        ("{{ (", "(", ""),
        ("{{ [", "[", ""),
        ("{{ -", "-", "1 }}"),
        ("{{ not ", "not ", "1 }}"),
        ("{{ x", ".x", " }}"),
        ("{{ x", "|list", " }}"),
        ("{{ x", "[0]", " }}"),
        ("{{ 1", " and 1", " }}"),
        ("{{ 1", " if 1 else 1", " }}"),
        ("{{ {", "1:{", ""),
        ("{{ x", "()", " }}"),
        ("{{ 1", " - 1", " }}"),
        ("{{ 1", " + 1", " }}"),
        ("{{ 1", " ~ 1", " }}"),
        ("{{ 1", " < 1", " }}"),
        ("{{ x", " is none", " }}"),
        ("{{ f(", "f(", ""),
        ("{{ x[", "x[", ""),
        ("{% set ", "(", ""),
        ("{% for a in ", "(", ""),
    ] {
        let source = format!("{before}{}{after}", inner.repeat(20_000));
        let got = render(&source, &json!({"x": [[]]}));
        let kind = got.as_ref().map_err(|error| error.kind);
        assert!(matches!(kind, Err(Kind::Limit | Kind::Syntax)), "{before}{inner}: {got:?}");
    }
    for (open, close) in [
        ("{% if 1 %}", "{% endif %}"),
        ("{% for x in v %}", "{% endfor %}"),
        ("{% with %}", "{% endwith %}"),
        ("{% generation %}", "{% endgeneration %}"),
    ] {
        let source = format!("{}{}", open.repeat(20_000), close.repeat(20_000));
        assert_eq!(
            render(&source, &json!({"v": []})).map_err(|error| error.kind),
            Err(Kind::Limit),
            "{open}"
        );
    }
    ends(&format!("{{% if 0 %}}{}{{% endif %}}", "{% elif 0 %}".repeat(50_000)), Kind::Limit);
    ends(&"a".repeat(2 << 20), Kind::Limit);
}

#[test]
fn values_that_are_given_too_deep_are_refused() {
    // The macro `json!` serialises what it takes, level by level: its stack would end before the limit is reached.
    let deep = (0..5000).fold(json!(1), |inner, _| Value::Array(vec![inner]));
    let variables = Value::Object([("v".to_owned(), deep)].into_iter().collect());
    let got = render("{{ v }}", &variables).map_err(|error| error.kind);
    assert_eq!(got, Err(Kind::Limit));
}

#[test]
fn inputs_that_once_panicked_are_errors() {
    for source in [
        "{{ ''[::-1] }}",
        "{{ [][::-1] }}",
        "{{ [][-9:9:-3] }}",
        "{{ 'abc'[5:1:-1] }}",
        "{% for x in v %}{{ loop.cycle() }}{% endfor %}",
        "{% for x in v %}{% with %}{% break %}{% endwith %}{% endfor %}",
        "{% for x in v %}{% set y %}{% break %}{% endset %}{% endfor %}",
        "{% for x in v %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
        "{{ loop(v) }}",
        "{{ caller() }}",
        "{{ super() }}",
        "{{ self.x() }}",
        "{{ range(1, 9, 0) }}",
        "{{ -9223372036854775808 // -1 }}",
        "{{ (0 - 170141183460469231731687303715884105727 - 1) // -1 }}",
        "{{ 'é'[0:1] }}{{ 'é'|truncate(1) }}",
        "{{ '%' % 1 }}",
        "{{ '{' .format(1) }}",
        "{{ '{0[' .format(1) }}",
        "{{ ''.join(v) }}",
        "{% include 'x' %}",
        "{% extends 'x' %}",
        "{% block b %}x{% endblock %}",
        "{{ cycler() }}",
        "{{ [1, 2]|sort(attribute='..') }}",
        "{% set a, b = v %}{{ a }}",
        "{% for a, (b, c) in [[1, [2, 3]]] %}{{ c }}{% endfor %}",
        "{{ {}|random }}",
        "{{ 5|round(-500) }}",
        "{{ 1.5|round(500) }}",
    ] {
        let _ = render(source, &json!({"v": [1, 2]}));
    }
}

/// What a render may take at its peak, whatever it would build: a few times `Limits::value_bytes`.
const PEAK: u64 = 256 << 20;

/// Each template in one process of its own, which counts its bytes.
fn measured(rows: &[Value]) -> Vec<Value> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let lines = rows.iter().fold(String::new(), |mut lines, row| {
        let _ = writeln!(lines, "{row}");
        lines
    });
    std::fs::write(file.path(), lines).expect("it is written");
    let program = tests::place::program(Path::new(env!("CARGO_BIN_EXE_chat")));
    let run = Command::new(program).arg("rows").arg(file.path()).output().expect("it runs");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let text = String::from_utf8(run.stdout).expect("JSON is UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}

#[test]
fn growth_is_refused_before_it_is_built() {
    let big = "{% set s = 'a<' * 5000000 %}";
    let sources: Vec<String> = [
        "{{ ('x' * 10**9)|length }}",
        "{{ ([1] * 10**9)|length }}",
        "{{ v|tojson(indent=100000) }}",
        "{{ v|tojson(indent='ab' * 50000, separators=['x' * 90000, ': ']) }}",
        "{{ 'x'|center(10**9)|length }}{{ 'x'.ljust(10**9) }}",
        "{{ '%999999999d' % 1 }}",
        "{{ '{:>999999999}'.format(1) }}",
        "{{ 'x\n'|indent(10**9) }}",
        "{{ ([s] * 1000)|join|length }}",
        "{{ s.join([s] * 1000)|length }}",
        "{{ s.join(range(1000)|map('string')|list)|length }}",
        "{{ s.replace('a', s)|length }}",
        "{{ s|replace('a', 'b' * 100)|length }}",
        "{{ ('%s' * 1000) % ((s,) * 1000) }}",
        "{{ ('{0}' * 1000).format(s)|length }}",
        "{{ s.split('a')|length }}",
        "{{ ('\n' * 50000000).splitlines()|length }}",
        "{{ ('a ' * 30000000).split()|length }}",
        "{{ s|list|length }}",
        "{{ ([s] * 1000)|string|length }}",
        "{{ ([s] * 1000)|tojson|length }}",
        "{{ ([s] * 1000) }}",
        "{{ ([s] * 1000)|tojson }}",
        "{{ ('\\u0001' * 60000000)|tojson|length }}",
        "{{ (['\\u0001' * 60000000])|string|length }}",
        "{{ ('\"' * 60000000)|e|length }}",
        "{% set ns = namespace(s=s) %}{% for i in range(99999) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
        "{% set ns = namespace(s=s) %}{% for i in range(99) %}{% set ns.s %}{{ ns.s }}{{ ns.s }}{% endset %}{% endfor %}",
        "{{ s + s + s + s + s + s + s + s }}",
        "{% for i in range(99999) %}{{ s }}{% endfor %}",
    ]
    .map(|source| format!("{big}{source}"))
    .into();
    let deep = (0..40).fold(json!(1), |inner, _| json!([inner, inner.is_number()]));
    let mut rows: Vec<Value> =
        sources.iter().map(|source| json!({"template": source, "context": {"v": deep}})).collect();
    rows.push(json!({"template": "{{ messages|length }}", "messages": 300_000}));
    for (row, got) in rows.iter().zip(measured(&rows)) {
        assert_eq!(got["error"], "limit", "{row}: {}", &got.to_string()[..got.to_string().len().min(200)]);
        assert!(got["peak"].as_u64().expect("a count") < PEAK, "{row}: {got}");
    }
}

#[test]
fn compiling_takes_no_more_than_running() {
    let full = |piece: &str| piece.repeat(((1 << 20) - 64) / piece.len());
    let sources = [
        full("{{a}}"),
        full("{{a+b}}"),
        full("{%if a%}{%endif%}"),
        full("{%set a=1%}"),
        full("{%macro a()%}{%endmacro%}"),
        full("{#x#}"),
        format!("{{{{ {} }}}}", full("a|e|")),
        format!("{{{{ {} }}}}", full("a+")),
        format!("{{{{ {} }}}}", full("[")),
        format!("{{{{ [{}] }}}}", full("1,")),
        format!("{{{{ {} }}}}", full("'a' ")),
        full("{{ 1 }}{{ 'a' ~ 'b' }}"),
        full("{{[1,1,1,1,1,1,1,1,1,1]}}"),
    ];
    let rows: Vec<Value> = sources
        .iter()
        .map(|source| json!({"template": format!("{{% if x %}}{source}{{% endif %}}")}))
        .collect();
    for (source, got) in sources.iter().zip(measured(&rows)) {
        assert!(got["peak"].as_u64().expect("a count") < PEAK, "{}: {}", &source[..40], got["peak"]);
    }
}

/// A list of two that hold the one before, sixty times: a value of some kilobytes whose text has no end.
#[test]
fn doubled_values_are_walked_within_the_limits() {
    let doubled = |start: &str, step: &str, end: &str| {
        let set = format!("{{% set ns = namespace(x={start}, y={start}) %}}");
        let twice = step.replace('#', "ns.x");
        let other = step.replace('#', "ns.y");
        format!(
            "{set}{{% for i in range(60) %}}{{% set ns.x = {twice} %}}{{% set ns.y = {other} %}}{{% endfor %}}\
             {{% set x = ns.x %}}{{% set y = ns.y %}}{{{{ {end} }}}}"
        )
    };
    let lists = [
        "x|pprint",
        "x|tojson|length",
        "x|string|length",
        "x ~ 'a'",
        "'%s' % [x]",
        "'%r' % [x]",
        "'%a' % [x]",
        "'{}'.format(x)",
        "'{!a}'.format(x)",
        "x == y",
        "x != y",
        "y in [x]",
        "[x, y]|sort",
        "[x, y]|max",
        "[x]|join",
        "x|replace('a', 'b')",
        "x|e",
        "{'a': x}|xmlattr",
        "x|upper",
        "x|trim",
        "x|wordcount",
        "[x].index(y)",
        "[x].count(y)",
        "x|center(9)",
        "x|urlencode",
        "[x, y]|groupby(0)|list",
        "[x]|map('string')|list",
        "x|format",
        "x|title",
        "x|striptags",
        "x is eq(y)",
        "x is in([y])",
        "x|safe",
        "x|tojson(indent=1)",
        "{'a': {'b': x}}|pprint",
        "({'a': x},)|pprint",
        "[x, y]|min",
        "x < y",
        "x|forceescape",
        "[x, 1]|sum(start=[])",
    ];
    let tuples =
        ["{x: 1}[y]", "[x, y]|unique|list", "{x: 1, y: 2}", "x|pprint", "x in {y: 1}", "{x: 1}|pprint"];
    let sources = lists.iter().map(|end| doubled("[1]", "[#, #]", end));
    let sources = sources.chain(tuples.iter().map(|end| doubled("(1,)", "(#, #)", end)));
    let sources = sources.chain(lists.iter().map(|end| doubled("{'a': 1}", "{'a': #, 'b': #}", end)));
    for source in sources {
        let start = Instant::now();
        let got = render_with(&source, &json!({}), small());
        assert!(got.is_err() && start.elapsed() < Duration::from_secs(20), "{source}: {got:?}");
    }
    let printed = ["x|pprint", "{'a': {'b': x}}|pprint", "({'a': x},)|pprint"];
    let printed = printed.map(|end| json!({"template": doubled("[1]", "[#, #]", end)}));
    for (row, got) in printed.iter().zip(measured(&printed)) {
        assert_eq!(got["error"], "unsupported", "{row}: {got}");
        assert!(got["peak"].as_u64().expect("a count") < 1 << 20, "{row}: {got}");
    }
}

#[test]
fn a_limit_says_its_name_and_its_size() {
    let limits = Limits {
        source_bytes: 200,
        steps: 1000,
        value_bytes: 1 << 20,
        work_bytes: 3 << 20,
        output_bytes: 16 << 10,
        depth: 20,
        ..Limits::default()
    };
    let says = |source: &str, context: Value| {
        render_with(source, &context, Options { limits, ..options() }).expect_err(source).message
    };
    assert_eq!(says(&"a".repeat(201), json!({})), "source exceeds 200 bytes (`Limits::source_bytes`)");
    assert_eq!(
        says("{% for i in range(9999) %}{% endfor %}", json!({})),
        "steps exceed 1000 (`Limits::steps`)"
    );
    assert_eq!(says("{{ 'x' * 2000000 }}", json!({})), "a value exceeds 1 MiB (`Limits::value_bytes`)");
    assert_eq!(
        says("{% for i in range(9) %}{% set x = 'x' * 1000000 %}{% endfor %}", json!({})),
        "work exceeds 3 MiB (`Limits::work_bytes`)"
    );
    assert_eq!(says("{{ 'x' * 20000 }}", json!({})), "output exceeds 16 KiB (`Limits::output_bytes`)");
    assert_eq!(
        says(
            "{% set ns = namespace(x=1) %}{% for i in range(50) %}{% set ns.x = [ns.x] %}{% endfor %}",
            json!({})
        ),
        "depth exceeds 20 (`Limits::depth`)"
    );
}
