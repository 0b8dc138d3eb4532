//! What a GGUF file says of a tokenizer, and what it cannot say.

use super::*;

fn key<'f>(file: &'f Gguf, name: &str) -> Option<&'f Value> {
    file.value(&format!("tokenizer.ggml.{name}"))
}

/// A template that puts tokens around a text.
fn around(front: &[(&str, u32)], behind: &[(&str, u32)]) -> Json {
    let piece = |(name, _): &(&str, u32)| json!({"SpecialToken": {"id": name, "type_id": 0}});
    let mut single: Vec<Json> = front.iter().map(piece).collect();
    single.push(json!({"Sequence": {"id": "A", "type_id": 0}}));
    single.extend(behind.iter().map(piece));
    let ids = front
        .iter()
        .chain(behind)
        .map(|(name, id)| ((*name).to_owned(), json!({"id": name, "ids": [id], "tokens": [name]})));
    let ids: serde_json::Map<String, Json> = ids.collect();
    json!({"type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": ids})
}

/// Makes a tokenizer one of characters with bytes to fall back to: 256 tokens of bytes, and the markers behind them.
fn scored(json: &mut Json, normalizer: Json, cut: Json) {
    let bytes = (0..=u8::MAX).map(|byte| (format!("<0x{byte:02X}>"), json!(byte)));
    json["model"] = json!({
        "type": "BPE", "byte_fallback": true, "vocab": bytes.collect::<serde_json::Map<_, _>>(), "merges": [],
    });
    (json["normalizer"], json["pre_tokenizer"], json["decoder"]) = (normalizer, cut, Json::Null);
}

fn metaspace(scheme: &str, split: bool) -> Json {
    json!({"type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": scheme, "split": split})
}

#[test]
fn what_of_a_tokenizer_has_no_key_is_refused_by_name() {
    let model = Changed::new();
    let refused = |change: &dyn Fn(&mut Json), words: &str| {
        model.renew();
        model.edit("tokenizer.json", change);
        model.refused(&[], words);
    };
    let bytes = |prefix: bool| json!({"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": true});
    let space = || json!({"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"});
    refused(&|json| json["normalizer"] = json!({"type": "Lowercase"}), "normalizer: expected none");
    refused(&|json| json["normalizer"] = json!({"type": "Sequence"}), "normalizer: expected none");
    refused(&|json| json["pre_tokenizer"] = bytes(true), "pre_tokenizer: expected add_prefix_space false");
    refused(&|json| json["pre_tokenizer"] = json!({"type": "Whitespace"}), "pre_tokenizer: expected that of");
    for behavior in ["Contiguous", "Removed"] {
        let pattern = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
        let cut = |json: &mut Json| {
            let mut level = bytes(false);
            level["use_regex"] = json!(false);
            json["model"]["merges"] = json!([["a", "b"]]);
            json["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": false}, level,
            ]});
        };
        refused(&cut, "pre_tokenizer: expected that of");
    }
    refused(&|json| json["model"]["dropout"] = json!(0.1), "model.dropout: expected null");
    for affix in ["end_of_word_suffix", "continuing_subword_prefix"] {
        refused(&|json| json["model"][affix] = json!("</w>"), &format!("model.{affix}: expected null"));
    }
    refused(&|json| json["decoder"] = json!({"type": "WordPiece"}), "decoder: expected ByteLevel alone");
    for flag in ["lstrip", "rstrip", "single_word"] {
        refused(&|json| json["added_tokens"][1][flag] = json!(true), &format!("{flag}: expected false"));
    }
    let unmerged = |json: &mut Json| {
        json["model"]["ignore_merges"] = json!(true);
        json["model"]["vocab"]["xyz"] = json!(257);
        json["added_tokens"] = json!([json["added_tokens"][0]]);
    };
    refused(
        &unmerged,
        "model.ignore_merges: expected false, as readers do by the pattern's name, found true, and merges",
    );

    let roberta = json!({"type": "RobertaProcessing", "sep": ["a", 1], "cls": ["b", 0]});
    refused(&|json| json["post_processor"] = roberta.clone(), "post_processor: expected ByteLevel or");
    let marker =
        |json: &Json, number: usize| json["added_tokens"][number]["content"].as_str().unwrap().to_owned();
    refused(
        &|json| json["post_processor"] = around(&[(&marker(json, 1), 257)], &[]),
        "post_processor.single: expected the bos_token of tokenizer_config.json in front of a text",
    );
    refused(
        &|json| json["post_processor"] = around(&[], &[(&marker(json, 0), 256)]),
        "post_processor.single: expected the eos_token of tokenizer_config.json behind a text",
    );
    refused(
        &|json| json["post_processor"] = around(&[(&marker(json, 0), 256), (&marker(json, 1), 257)], &[]),
        "post_processor.single: expected the text, with one special token in front",
    );
    refused(
        &|json| json["model"]["vocab"]["zz"] = json!(5),
        "expected a number of its own, found 5, that of",
    );
    refused(&|json| json["added_tokens"][1]["content"] = json!("a\0b"), "expected a text without U+0000");
    refused(
        &|json| json["added_tokens"][1]["content"] = json!("!"),
        "added_tokens \"!\": expected one number for a text, found 257 and",
    );

    refused(
        &|json| json["model"]["byte_fallback"] = json!(true),
        "model.vocab \"<0x00>\": expected the token of a byte",
    );
    refused(&|json| scored(json, Json::Null, Json::Null), "normalizer: expected Replace \" \" by");
    refused(
        &|json| scored(json, json!({"type": "NFKC"}), metaspace("never", true)),
        "normalizer: expected Replace",
    );
    refused(
        &|json| scored(json, space(), json!({"type": "Digits", "individual_digits": true})),
        "pre_tokenizer: expected none, or Metaspace",
    );
    let normalized = |json: &mut Json| {
        scored(json, space(), Json::Null);
        json["added_tokens"][1]["normalized"] = json!(true);
    };
    refused(&normalized, "normalized: expected false beside a normalizer");
    let two_words = |json: &mut Json| {
        scored(json, Json::Null, metaspace("never", true));
        json["model"]["vocab"]["a\u{2581}"] = json!(258);
    };
    refused(&two_words, "pre_tokenizer.split: expected false: readers do not cut a text at its spaces");
    model.renew();
    model.edit("tokenizer.json", |json| scored(json, space(), Json::Null));
    model.refused(&["--pre", "gpt-2"], "model.byte_fallback: expected no --pre");
    model.renew();
    model.refused(&["--pre", ""], "pre_tokenizer: expected a name in --pre");
}

#[test]
fn a_token_without_a_text_or_a_number_is_refused_by_name() {
    let model = Changed::new();
    let refused = |name: &str, change: &dyn Fn(&mut Json), words: &str| {
        model.renew();
        model.edit(name, change);
        model.refused(&[], words);
    };
    let config = "tokenizer_config.json";
    refused(
        config,
        &|json| json["added_tokens_decoder"] = json!({"258": {"content": "<|more|>"}}),
        "tokenizer_config.json: added_tokens_decoder[\"258\"]: expected a token of tokenizer.json",
    );
    refused(
        config,
        &|json| json["pad_token"] = json!("<|more|>"),
        "pad_token: expected a token of tokenizer.json",
    );
    refused(
        "added_tokens.json",
        &|json| json["<|more|>"] = json!(258),
        "added_tokens.json: \"<|more|>\": expected",
    );
    refused(config, &|json| json["eos_token"] = Json::Null, "expected eos_token, or eos_token_id");
    model.renew();
    model.edit(config, |json| json["bos_token"] = Json::Null);
    model.edit("tokenizer.json", |json| {
        let first = json["added_tokens"][0]["content"].as_str().unwrap().to_owned();
        json["post_processor"] = around(&[(&first, 256)], &[]);
    });
    model.refused(&[], "expected the bos_token of tokenizer_config.json in front of a text");
}

#[test]
fn texts_begin_and_end_as_the_tokenizer_says() {
    let model = Changed::new();
    model.renew();
    model.edit("tokenizer_config.json", |json| json["add_bos_token"] = json!(true));
    let (file, said) = model.exported(&[]);
    assert_eq!(key(&file, "add_bos_token"), Some(&Value::Bool(false)));
    assert_eq!(said, "");
    model.edit("tokenizer_config.json", |json| json["add_bos_token"] = json!(false));
    model.edit("tokenizer.json", |json| {
        let names = [0, 1].map(|number| json["added_tokens"][number]["content"].as_str().unwrap().to_owned());
        json["post_processor"] = around(&[(&names[0], 256)], &[(&names[1], 257)]);
    });
    let (file, _) = model.exported(&[]);
    for name in ["add_bos_token", "add_eos_token"] {
        assert_eq!(key(&file, name), Some(&Value::Bool(true)), "{name}");
    }
    assert_eq!(
        [key(&file, "bos_token_id"), key(&file, "eos_token_id")],
        [256, 257].map(Value::U32).each_ref().map(Some)
    );
}

/// Three have a key; the tokenizer's own comes first, then those that readers do not know by their texts.
#[test]
fn every_end_of_an_answer_has_a_key_or_is_said() {
    let model = Changed::new();
    model.renew();
    model.edit("tokenizer_config.json", |json| json["eos_token"] = Json::Null);
    model.edit("generation_config.json", |json| json["eos_token_id"] = json!(65));
    let ends = |file: &Gguf| {
        ["eos", "eot", "eom"].map(|name| key(file, &format!("{name}_token_id")).and_then(Value::whole))
    };
    assert_eq!(ends(&model.exported(&[]).0), [Some(65), None, None]);
    model.renew();
    model.edit("generation_config.json", |json| json["eos_token_id"] = json!([257, 65, 66]));
    let (file, said) = model.exported(&[]);
    assert_eq!((ends(&file), said.as_str()), ([Some(257), Some(65), Some(66)], ""));
    let folder = model.out.path();
    let flags =
        ["generate", "out.gguf", "--ids", "72,101", "--max-new-tokens", "40", "--json", "--device", "cpu"];
    let of_file: Json = serde_json::from_str(&run(Path::new(TRAINER), folder, &flags).stdout).expect("JSON");
    let first = of_file["new_ids"][0].as_u64().expect("a token");
    model.edit("generation_config.json", |json| json["eos_token_id"] = json!([257, first]));
    model.exported(&["--dtype", "float32"]);
    let of_file: Json = serde_json::from_str(&run(Path::new(TRAINER), folder, &flags).stdout).expect("JSON");
    assert_eq!(of_file["new_ids"], json!([first]), "a second end is one");
    model.edit("generation_config.json", |json| json["eos_token_id"] = json!([257, 65, 66, 67]));
    let (file, said) = model.exported(&[]);
    assert_eq!(ends(&file), [Some(257), Some(65), Some(66)]);
    assert!(said.contains("eos_token_id 67") && said.contains("has no key"), "{said}");
}

#[test]
fn a_space_that_readers_put_elsewhere_is_said() {
    let model = Changed::new();
    let space = json!({"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"});
    let prepend = json!({"type": "Prepend", "prepend": "\u{2581}"});
    let both = json!({"type": "Sequence", "normalizers": [prepend, space]});
    for (normalizer, cut, prefix, words) in [
        (Json::Null, metaspace("first", false), true, Some("prepend_scheme \"first\" has no key")),
        (Json::Null, metaspace("always", true), true, Some("prepend_scheme \"always\" has no key")),
        (Json::Null, metaspace("never", true), false, None),
        (both, Json::Null, true, None),
        (space.clone(), Json::Null, false, None),
    ] {
        model.renew();
        model.edit("tokenizer.json", |json| scored(json, normalizer, cut));
        let (file, said) = model.exported(&[]);
        assert_eq!(key(&file, "add_space_prefix"), Some(&Value::Bool(prefix)));
        assert_eq!(words.is_none(), said.is_empty(), "{said}");
        assert!(said.contains(words.unwrap_or_default()), "{said}");
    }
    let pair = |merges: Json| {
        model.renew();
        model.edit("config.json", |json| json["vocab_size"] = json!(261));
        model.weigh(|all| {
            let (shape, numbers) = all.get_mut("model.embed_tokens.weight").expect("an embedding");
            numbers.resize(261 * shape[1], 0.0);
            shape[0] = 261;
        });
        model.edit("tokenizer.json", |json| {
            scored(json, space.clone(), Json::Null);
            json["model"]["vocab"]["a"] = json!(259);
            json["model"]["vocab"]["aa"] = json!(260);
            json["model"]["merges"] = merges;
        });
        model.exported(&[]).1
    };
    assert_eq!(pair(json!([["a", "a"]])), "");
    assert!(pair(json!([])).contains("model.merges: expected every two tokens that make a third"));
    model.renew();
    model.edit("tokenizer.json", |json| json["normalizer"] = json!({"type": "NFC"}));
    assert!(model.exported(&[]).1.contains("normalizer NFC"));
}

/// A filler for a number that no token has is a text that none has.
#[test]
fn tokens_have_texts_of_their_own() {
    let model = Changed::new();
    model.renew();
    let vocab = Llama::open(&text(&model.path(""))).expect("a model").config.vocab;
    model.edit("tokenizer.json", |json| {
        let added = json["added_tokens"].as_array_mut().expect("a list");
        added.truncate(2);
        json["model"]["vocab"].as_object_mut().unwrap().retain(|_, id| *id != 7 && *id != 8);
        json["model"]["vocab"]["[PAD7]"] = json!(8);
    });
    let (file, _) = model.exported(&[]);
    let Some(Value::Array(Array::String(tokens))) = key(&file, "tokens") else { panic!("tokens") };
    assert_eq!((tokens[7].as_str(), tokens[8].as_str()), ("[PAD7]_", "[PAD7]"));
    assert_eq!(tokens.iter().collect::<std::collections::BTreeSet<_>>().len(), vocab);
}

#[test]
fn templates_keep_their_names() {
    let model = Changed::new();
    model.renew();
    let folder = model.path("additional_chat_templates");
    fs::create_dir(&folder).expect("a folder");
    fs::write(folder.join("tool_use.jinja"), "tools").expect("it can be written");
    let (file, said) = model.exported(&[]);
    let named =
        |file: &Gguf| file.value("tokenizer.chat_template.tool_use").and_then(Value::text) == Some("tools");
    assert!(named(&file) && file.value("tokenizer.chat_template").is_some() && said.is_empty(), "{said}");
    fs::remove_file(model.path("chat_template.jinja")).expect("it was there");
    fs::write(folder.join("rag.jinja"), "texts").expect("it can be written");
    let (file, said) = model.exported(&[]);
    assert!(named(&file) && file.value("tokenizer.chat_template").is_none(), "{said}");
    assert_eq!(
        file.value("tokenizer.chat_templates"),
        Some(&Value::Array(Array::String(vec!["rag".into(), "tool_use".into()])))
    );
    assert!(said.contains("expected a chat template called \"default\""), "{said}");
}
