//! The Llama, its training step and its files, against the original libraries and against damaged checkpoints.

use std::fs;

use reference::graph::interpret::Values;
use reference::graph::{Array, Builder, Dtype, Real, interpret};
use reference::llama::train::{Recipe, Report, Trainer, step_graph};
use reference::llama::{Llama, Model, Rope, Scaling, Spec, Storage, hub, rope};
use reference::optim::AdamW;
use safetensors::tensor::Dtype as StoredDtype;
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::small_llama::{self, SmallLlama, Stored};
use tests::tiny_llama::{Run, TinyLlama};

#[test]
fn dense_logits_and_loss_are_those_of_the_original() {
    let Some(tiny) = TinyLlama::find() else { return };
    let llama = tiny.open("dense");
    check_logits::<f32>(&tiny, &llama, "logits_dense_f32", 2e-5);
    check_logits::<f64>(&tiny, &llama, "logits_dense_f32", 2e-5);
    let graph = llama.spec().training_loss().expect("a graph");
    let rows = tiny.numbers("expected.safetensors", "logits_dense_f32").shape[0];
    let ids = tiny.ids::<f32>(0..rows);
    let mut values = inputs(&llama, &ids);
    values.insert("labels".into(), ids);
    let loss = interpret(&graph, &values).expect("a loss")[0].wide()[0];
    let want = tiny.numbers("expected.safetensors", "loss_dense_f32").values[0];
    assert!((loss - want).abs() < 2e-6, "loss {loss}, the original has {want}");
}

#[test]
fn logits_of_the_quantised_model_are_those_of_the_original() {
    let Some(tiny) = TinyLlama::find() else { return };
    check_logits::<f32>(&tiny, &tiny.open("nf4"), "logits_nf4_f32", 2e-5);
}

#[test]
fn a_run_in_f32_is_as_near_the_truth_as_the_original_is() {
    let Some(tiny) = TinyLlama::find() else { return };
    let (run, trained) = trained::<f32>(&tiny);
    check_run(&tiny, &run, &trained);
}

/// The fair rule: an f32 run is no further from the truth than three times the original one, above a floor.
pub(crate) fn check_run(tiny: &TinyLlama, run: &[Report], trained: &Values<f32>) {
    let series = [("qlora_losses", "losses", 5e-6), ("qlora_grad_norms", "grad_norms", 2e-4)];
    let own: [Vec<f64>; 2] =
        [run.iter().map(|step| step.loss).collect(), run.iter().map(|step| step.grad_norm).collect()];
    for ((original, truth, floor), own) in series.into_iter().zip(own) {
        let original = tiny.numbers("expected.safetensors", original).values;
        let truth = tiny.numbers("truth.safetensors", truth).values;
        let (theirs, ours) = (relative(&original, &truth), relative(&own, &truth));
        println!("f32 run: ours {ours:e} from the truth, theirs {theirs:e}");
        assert!(ours <= (3.0 * theirs).max(floor), "{ours} from the truth, the original {theirs}");
    }
    let end = tiny.adapter("adapter-end").values::<f32>();
    let (ours, theirs) = (adapter_distance(tiny, trained), adapter_distance(tiny, &end));
    println!("f32 adapter: ours {ours:e}, theirs {theirs:e}");
    assert!(ours <= (3.0 * theirs).max(1e-4), "adapter {ours} from the truth, the original {theirs}");
}

#[test]
fn a_run_in_f64_is_the_truth() {
    let Some(tiny) = TinyLlama::find() else { return };
    let (run, trained) = trained::<f64>(&tiny);
    let losses = tiny.numbers("truth.safetensors", "losses").values;
    let norms = tiny.numbers("truth.safetensors", "grad_norms").values;
    let mut largest = 0.0_f64;
    for (step, report) in run.iter().enumerate() {
        let off = [report.loss - losses[step], report.grad_norm - norms[step]].map(f64::abs);
        // In 20 updates nothing can amplify a rounding of f64 beyond this; after them, what an f32 run may be off by.
        let slack = if step < 20 { [1e-9, 1e-9] } else { [5e-6, 2e-4] };
        let within = off.iter().zip(slack).all(|(off, slack)| *off <= slack);
        assert!(within, "step {step}: {off:?} from the truth");
        largest = off.into_iter().fold(largest, f64::max);
    }
    let distance = adapter_distance(&tiny, &trained);
    println!("f64 run: {largest:e} from the truth, its adapter {distance:e}");
    assert!(distance <= 1e-4, "adapter {distance} from the truth");
}

/// The fields of both forms, and what they are read as.
#[test]
fn both_forms_of_the_rotary_parameters_are_read() {
    let llama3 = json!({"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16});
    let scaling = Scaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, original: 16 };
    let with = |object: &Value, field: &str, value: Value| {
        let mut object = object.clone();
        object[field] = value;
        object
    };
    let old =
        |scaling: Value| SmallLlama::sound().with("rope_theta", json!(7.0)).with("rope_scaling", scaling);
    let new = |parameters: Value| {
        let mut small = SmallLlama::sound().with("rope_parameters", parameters);
        small
            .config
            .as_object_mut()
            .expect("an object")
            .retain(|field, _| !["rope_theta", "rope_scaling"].contains(&field.as_str()));
        small
    };
    let table = [
        (old(Value::Null), 7.0, Scaling::None),
        (old(json!({"type": "linear", "factor": 2.0})), 7.0, Scaling::Linear { factor: 2.0 }),
        (old(json!({"rope_type": "default"})), 7.0, Scaling::None),
        (old(llama3.clone()), 7.0, scaling.clone()),
        (new(with(&llama3, "rope_theta", json!(9.0))), 9.0, scaling),
        (
            new(json!({"rope_type": "linear", "factor": 4, "rope_theta": 9.0})),
            9.0,
            Scaling::Linear { factor: 4.0 },
        ),
        (new(json!({})), 10000.0, Scaling::None),
    ];
    for (small, theta, scaling) in table {
        let config = small.open().unwrap_or_else(|error| panic!("{error}")).config;
        assert_eq!(config.rope, Rope { theta, scaling });
    }
}

/// transformers 5 takes `rope_scaling` where both are there, and loses the base of `rope_parameters`.
#[test]
fn rotary_parameters_that_contradict_are_an_error() {
    let newer = json!({"rope_type": "default", "rope_theta": 500.0});
    let both = |scaling: Value, parameters: &Value| {
        let small = SmallLlama::sound().with("rope_scaling", scaling);
        small.with("rope_parameters", parameters.clone())
    };
    for scaling in [
        json!({"rope_type": "linear", "factor": 4.0}),
        json!({"rope_type": "default"}), // of another base: 10000
        json!({"type": "linear", "factor": 4.0, "rope_theta": 500.0}),
    ] {
        let error = both(scaling, &newer).error();
        let want = "`rope_scaling`: expected the rotary embedding of `rope_parameters`, or only one of the two \
                    (transformers 5 would take `rope_scaling`, with a rope_theta of ";
        assert!(error.contains(want), "{error}");
    }
    let error = both(json!({"rope_type": "yarn", "factor": 4.0}), &newer).error();
    assert!(error.contains("`rope_scaling.rope_type`: expected \"default\", "), "{error}");
    let error = both(json!({"type": "linear"}), &newer).error();
    assert!(error.contains("missing `rope_scaling.factor`"), "{error}");
    let error = both(json!({"rope_type": "default"}), &json!({"rope_type": "dynamic"})).error();
    assert!(error.contains("`rope_scaling`: expected the rotary embedding of"), "{error}");
    // both mean the same, or one of them says nothing
    let linear = json!({"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0});
    let same = both(json!({"type": "linear", "factor": 4, "rope_theta": 500}), &linear);
    let by_base = both(json!({"type": "linear", "factor": 4}), &linear).with("rope_theta", json!(500));
    for small in [same, by_base, both(json!({}), &linear), both(linear.clone(), &json!({}))] {
        let rope = small.open().unwrap_or_else(|error| panic!("{error}")).config.rope;
        assert_eq!(rope, Rope { theta: 500.0, scaling: Scaling::Linear { factor: 4.0 } });
    }
    let llama3 = json!({"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16});
    let small = SmallLlama::sound().with("rope_scaling", llama3);
    let error = small.with("original_max_position_embeddings", json!(8)).error();
    let want = "`rope_scaling.original_max_position_embeddings`: expected 8, as outside of it, found 16";
    assert!(error.contains(want), "{error}");
}

#[test]
fn fields_that_may_be_missing_have_their_defaults() {
    let mut small = SmallLlama::sound();
    for field in
        ["head_dim", "tie_word_embeddings", "rms_norm_eps", "rope_theta", "architectures", "hidden_act"]
    {
        small.config.as_object_mut().expect("an object").remove(field);
    }
    let uneven =
        small.clone().with("num_attention_heads", json!(5)).with("num_key_value_heads", json!(1)).error();
    assert!(
        uneven.contains("`hidden_size`: expected an even size for each of 5 heads, found 12"),
        "{uneven}"
    );
    let (hidden, heads) = (json!(24), json!(6));
    let error = small.with("hidden_size", hidden).with("num_attention_heads", heads).error();
    assert!(error.contains("expected shape [17, 24], found [17, 12]"), "{error}"); // it was read that far
}

#[test]
fn a_configuration_that_is_not_this_model_is_refused_by_its_field() {
    let rope = |rope_type: &str, name: &str| json!({name: rope_type, "factor": 2.0});
    let table = [
        ("model_type", json!("mistral"), r#"`model_type`: expected "llama", found "mistral""#),
        ("model_type", Value::Null, r#"missing `model_type`: expected "llama""#),
        (
            "architectures",
            json!(["LlamaForTokenClassification"]),
            r#"expected ["LlamaForCausalLM"] or ["LlamaForS"#,
        ),
        ("hidden_act", json!("gelu"), r#"`hidden_act`: expected "silu", found "gelu""#),
        ("attention_bias", json!(true), "`attention_bias`: expected false, found true"),
        ("mlp_bias", json!(true), "`mlp_bias`: expected false, found true"),
        ("attention_dropout", json!(0.1), "`attention_dropout`: expected 0, found 0.1"),
        ("hidden_size", json!(0), "`hidden_size`: expected an integer from 1 to 16777216, found 0"),
        ("hidden_size", json!(1e30), "`hidden_size`: expected an integer from 1 to 16777216, found 1e+30"),
        ("hidden_size", json!("12"), r#"`hidden_size`: expected an integer from 1 to 16777216, found "12""#),
        ("vocab_size", Value::Null, "missing `vocab_size`: "),
        (
            "num_hidden_layers",
            json!(-1),
            "`num_hidden_layers`: expected an integer from 1 to 16777216, found -1",
        ),
        ("num_key_value_heads", json!(4), "`num_key_value_heads`: expected a divisor of 6 heads, found 4"),
        ("head_dim", json!(3), "`head_dim`: expected an even size, found 3"),
        ("head_dim", json!(1 << 23), "`head_dim`: expected at most"),
        ("rms_norm_eps", json!(0), "`rms_norm_eps`: expected a number above 0, found 0"),
        ("rope_theta", json!(-1), "`rope_theta`: expected a number above 0, found -1"),
        ("rope_scaling", json!(3), "`rope_scaling`: expected an object or null, found 3"),
        ("rope_scaling", rope("yarn", "rope_type"), r#"`rope_scaling.rope_type`: expected "default","#),
        ("rope_scaling", rope("dynamic", "type"), r#""llama3", found "dynamic""#),
        ("rope_parameters", rope("longrope", "rope_type"), r#""llama3", found "longrope""#),
        (
            "rope_scaling",
            json!({"type": "linear"}),
            "missing `rope_scaling.factor`: expected a number above 0",
        ),
        ("rope_parameters", rope("llama3", "rope_type"), "missing `rope_parameters.low_freq_factor`: "),
        (
            "quantization_config",
            json!({"quant_method": "gptq"}),
            r#"`quantization_config.quant_method`: expected "bitsandbytes", found "gptq""#,
        ),
        ("quantization_config", json!({}), "missing `quantization_config.quant_method`: "),
        (
            "quantization_config",
            json!({"quant_method": "bitsandbytes", "load_in_8bit": true}),
            "load_in_8bit`: expected false, found true",
        ),
        (
            "quantization_config",
            json!({"quant_method": "bitsandbytes", "bnb_4bit_quant_type": "fp4"}),
            r#"bnb_4bit_quant_type`: expected "nf4", found "fp4""#,
        ),
    ];
    for (field, value, words) in table {
        let error = SmallLlama::sound().with(field, value).error();
        assert!(error.contains(words) && error.contains("config.json"), "{error}, expected was {words}");
    }
}

#[test]
fn a_tensor_that_does_not_fit_is_refused_by_its_name() {
    let name = "model.layers.1.mlp.up_proj.weight";
    let mut small = SmallLlama::sound();
    small.tensors.remove(name);
    assert_eq!(small.error(), format!("tensor `{name}`: not in the checkpoint"));
    let with = |stored: Stored| {
        let mut small = SmallLlama::sound();
        small.tensors.insert(name.to_owned(), stored);
        small.error()
    };
    let turned = with(Stored::floats(&[12, 20], 0));
    assert_eq!(turned, format!("tensor `{name}`: expected shape [20, 12], found [12, 20]"));
    let integers = with(Stored { dtype: StoredDtype::I8, shape: vec![20, 12], bytes: vec![0; 240] });
    assert_eq!(integers, format!("tensor `{name}`: expected elements of F32, F16 or BF16, found I8"));
    let packed = with(Stored { dtype: StoredDtype::U8, shape: vec![120, 1], bytes: vec![0; 120] });
    assert!(packed.contains(name) && packed.contains("quant_state.bitsandbytes__nf4"), "{packed}");
}

#[test]
fn an_embedding_in_bytes_is_refused() {
    let mut small = SmallLlama::sound();
    let bytes = Stored { dtype: StoredDtype::U8, shape: vec![17, 12], bytes: vec![0; 204] };
    small.tensors.insert("model.embed_tokens.weight".into(), bytes);
    let error = small.error();
    assert_eq!(error, "tensor `model.embed_tokens.weight`: expected elements of F32, F16 or BF16, found U8");
}

#[test]
fn shards_are_read_and_one_cut_short_is_refused_by_its_name() {
    let folder = TempDir::new().expect("a temporary folder can be made");
    SmallLlama::sound().save_sharded(folder.path());
    let whole = small_llama::open(folder.path()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(whole.values::<f32>().unwrap(), SmallLlama::sound().open().unwrap().values().unwrap());
    drop(whole);
    let shard = folder.path().join("model-2.safetensors");
    let bytes = fs::read(&shard).expect("a shard");
    fs::write(&shard, &bytes[..bytes.len() - 10]).expect("a file can be written");
    let error = small_llama::open(folder.path()).expect_err("a shard is cut short").to_string();
    assert!(error.contains("model-2.safetensors") && error.contains("tensor `model."), "{error}");
    fs::remove_file(&shard).expect("a file can be removed");
    let error = small_llama::open(folder.path()).expect_err("a shard is missing").to_string();
    assert!(error.contains("model-2.safetensors"), "{error}");
}

#[test]
fn tied_embeddings_need_no_output_layer() {
    let mut small = SmallLlama::sound().with("tie_word_embeddings", json!(true));
    let embedding = small.tensors["model.embed_tokens.weight"].clone();
    let mut untied = SmallLlama::sound();
    untied.tensors.insert("lm_head.weight".into(), embedding);
    small.tensors.remove("lm_head.weight");
    assert_eq!(small_logits(&small.open().expect("sound")), small_logits(&untied.open().expect("sound")));
}

#[test]
fn narrow_weights_and_a_narrow_compute_type_are_near_the_wide_model() {
    let mut small = SmallLlama::sound();
    small.tensors.values_mut().for_each(|stored| *stored = stored.to_bf16());
    let llama = small.open().expect("sound");
    assert!(llama.storages().values().all(|form| *form == Storage::Dense(Dtype::Bf16)));
    let truth = small_logits_in::<f64>(&llama, Dtype::F32).wide();
    let off = |compute| farthest(&small_logits_in::<f32>(&llama, compute).wide(), &truth);
    let [wide, half, narrow] = [Dtype::F32, Dtype::F16, Dtype::Bf16].map(off);
    assert!(wide < 1e-5 && wide < half && half < narrow && narrow < 0.1, "{wide} {half} {narrow}");
}

#[test]
fn layers_run_one_by_one_give_the_whole_model() {
    let llama = SmallLlama::sound().open().expect("sound");
    let (spec, ids) = (llama.spec(), small_ids::<f32>());
    let run = |part: &dyn Fn(&Model, &Builder), x: Option<&Array<f32>>| {
        let builder = Builder::new("part");
        part(&Model::new(&spec, builder.tape()), &builder);
        let mut values = inputs(&llama, &ids);
        values.extend(x.map(|x| ("x".to_owned(), x.clone())));
        interpret(&builder.finish().expect("a graph"), &values).expect("a result").remove(0)
    };
    let x = |model: &Model, builder: &Builder| {
        let [batch, length] = model.batch();
        builder.tape().input("x", Dtype::F32, [batch, length, spec.config.hidden.into()])
    };
    let mut between =
        run(&|model, builder| builder.tape().output("x", &model.embed(&model.tokens("ids"))), None);
    for layer in 0..spec.config.layers {
        let one = |model: &Model, builder: &Builder| {
            builder.tape().output("x", &model.layer(layer, &x(model, builder)));
        };
        between = run(&one, Some(&between));
    }
    let head =
        |model: &Model, builder: &Builder| builder.tape().output("logits", &model.head(&x(model, builder)));
    assert_eq!(run(&head, Some(&between)), small_logits(&llama));
}

#[test]
fn every_part_of_the_model_carries_its_name() {
    let graph = SmallLlama::sound().open().expect("sound").spec().forward().expect("a graph");
    let scopes: Vec<&str> = graph.nodes().iter().map(|node| node.scope.as_str()).collect();
    for scope in [
        "embed_tokens",
        "layers.0.self_attn.q_proj",
        "layers.1.mlp.down_proj",
        "layers.1.input_layernorm",
        "layers.0.self_attn",
        "norm",
        "lm_head",
    ] {
        assert!(scopes.contains(&scope), "no node of {scope}");
    }
}

#[test]
fn a_sequence_longer_than_the_model_is_made_for_is_refused() {
    let llama = SmallLlama::sound().open().expect("sound");
    let graph = llama.spec().forward().expect("a graph");
    let ids = Array::<f32>::integers(&[1, 33], vec![0; 33]);
    let error = interpret(&graph, &inputs(&llama, &ids)).expect_err("33 of 32 positions").to_string();
    assert!(error.contains("T: expected ") && error.contains("found 33"), "{error}");
}

#[test]
fn a_token_outside_the_vocabulary_is_named() {
    let llama = SmallLlama::sound().open().expect("sound");
    let graph = llama.spec().forward().expect("a graph");
    let ids = Array::<f32>::integers(&[1, 3], vec![0, 17, 2]);
    let error = interpret(&graph, &inputs(&llama, &ids)).expect_err("no such token").to_string();
    assert!(error.contains("index[1]: expected 0 to 16, found 17"), "{error}");
}

#[test]
fn a_step_without_an_adapter_is_refused() {
    let spec = SmallLlama::sound().open().expect("sound").spec();
    let recipe = Recipe { optimizer: AdamW::default(), max_norm: 1.0 };
    let error = step_graph(&spec, &recipe).expect_err("nothing to train").to_string();
    assert!(error.contains("no adapter"), "{error}");
}

#[test]
fn a_repository_is_found_in_the_cache_or_its_download_is_named() {
    let cache = TempDir::new().expect("a temporary folder can be made");
    let missing = hub::find_in(cache.path(), "org/small.llama-1").expect_err("nothing is there").to_string();
    assert!(missing.contains("`hf download org/small.llama-1`"), "{missing}");
    let folder = cache.path().join("models--org--small.llama-1");
    let snapshot = folder.join("snapshots/0123abcd");
    fs::create_dir_all(folder.join("refs")).expect("a folder can be made");
    fs::create_dir_all(&snapshot).expect("a folder can be made");
    fs::write(folder.join("refs/main"), "0123abcd").expect("a file can be written");
    let partial = hub::find_in(cache.path(), "org/small.llama-1").expect_err("no configuration").to_string();
    assert!(partial.contains("config.json") && partial.contains("hf download"), "{partial}");
    SmallLlama::sound().save(&snapshot);
    assert_eq!(hub::find_in(cache.path(), "org/small.llama-1").expect("it is there"), snapshot);
    fs::write(folder.join("refs/main"), "../../elsewhere").expect("a file can be written");
    assert!(hub::find_in(cache.path(), "org/small.llama-1").is_err());
    for given in ["nowhere", "a/b/c", "../x", "org/", "/absent/path"] {
        let error = hub::find_in(cache.path(), given).expect_err("no name of a repository").to_string();
        assert!(error.contains("neither a folder nor a repository's name"), "{error}");
    }
}

/// The definition: cosines and sines of every angle, to within 0.61 of an f32's last place.
#[test]
fn the_rotary_tables_are_cosines_and_sines() {
    let config =
        SmallLlama::sound().with("max_position_embeddings", json!(20000)).open().expect("sound").config;
    let frequencies = rope::frequencies(&config.rope, config.head_dim);
    assert_eq!(frequencies, [1.0, 0.01]);
    let [cos, sin] = rope::tables(&config, 20000);
    for (i, (cos, sin)) in cos.iter().zip(&sin).enumerate() {
        let angle = f64::from((i / 2) as f32 * frequencies[i % 2]);
        for (got, want) in [(*cos, angle.cos()), (*sin, angle.sin())] {
            let place = f64::from(want.abs() as f32).mul_add(f64::from(f32::EPSILON), 1e-12);
            assert!((f64::from(got) - want).abs() <= 0.61 * place, "angle {angle}: {got}, not {want}");
        }
    }
}

fn small_ids<R: Real>() -> Array<R> {
    Array::integers(&[2, 5], vec![1, 16, 3, 0, 7, 2, 2, 9, 11, 4])
}

fn small_logits(llama: &Llama) -> Array<f32> {
    small_logits_in(llama, Dtype::F32)
}

fn small_logits_in<R: Real>(llama: &Llama, compute: Dtype) -> Array<R> {
    let graph = Spec { compute, ..llama.spec() }.forward().expect("a graph");
    graph.check().expect("the graph is sound");
    interpret(&graph, &inputs(llama, &small_ids())).expect("logits").remove(0)
}

/// Logits of the first rows, as many as the file has.
fn check_logits<R: Real>(tiny: &TinyLlama, llama: &Llama, name: &str, slack: f64) {
    let want = tiny.numbers("expected.safetensors", name);
    let ids = tiny.ids::<R>(0..want.shape[0]);
    let graph = llama.spec().forward().expect("a graph");
    graph.check().expect("the graph is sound");
    let logits = interpret(&graph, &inputs(llama, &ids)).expect("logits").remove(0);
    assert_eq!(logits.shape, want.shape);
    let off = farthest(&logits.wide(), &want.values);
    println!("{name}: off by {off:e}");
    assert!(off <= slack, "{name}: {off} from the original");
}

/// Weights, tables and tokens.
fn inputs<R: Real>(llama: &Llama, ids: &Array<R>) -> Values<R> {
    let mut values = llama.values().expect("weights");
    values.append(&mut rope::values(&llama.config, ids.shape[1]));
    values.insert("ids".into(), ids.clone());
    values
}

/// The golden run: what every step reports, and the values at the end.
pub(crate) fn trained<R: Real>(tiny: &TinyLlama) -> (Vec<Report>, Values<R>) {
    let (run, llama, start) = (tiny.run(), tiny.open("nf4"), tiny.adapter("adapter-start"));
    let mut values = llama.values::<R>().expect("weights");
    values.append(&mut start.values());
    let mut spec = llama.spec();
    spec.adapter = Some(start.config);
    let mut trainer = Trainer::new(spec, recipe(&run), values).expect("a graph");
    let step = |step: usize| {
        let ids = tiny.ids(run.batch * step..run.batch * (step + 1));
        trainer.step(ids.clone(), ids, run.lr).expect("a step")
    };
    let reports = (0..run.steps).map(step).collect();
    (reports, trainer.values().clone())
}

pub(crate) fn recipe(run: &Run) -> Recipe {
    let [beta1, beta2] = run.betas;
    let optimizer = AdamW { beta1, beta2, eps: run.eps, weight_decay: run.weight_decay };
    Recipe { optimizer, max_norm: run.clip }
}

/// The largest difference.
fn farthest(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

/// The largest difference as a share of the truth.
fn relative(a: &[f64], truth: &[f64]) -> f64 {
    assert_eq!(a.len(), truth.len());
    a.iter().zip(truth).map(|(a, truth)| (a / truth - 1.0).abs()).fold(0.0, f64::max)
}

/// Relative distance (L2, over all tensors) of an adapter from the true end of the golden run.
fn adapter_distance<R: Real>(tiny: &TinyLlama, values: &Values<R>) -> f64 {
    let names = values.keys().filter(|name| name.starts_with("base_model."));
    let (mut off, mut all) = (0.0, 0.0);
    for name in names {
        let truth = tiny.numbers("truth.safetensors", &format!("adapter.{name}")).values;
        off += values[name].wide().iter().zip(&truth).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
        all += truth.iter().map(|b| b * b).sum::<f64>();
    }
    (off / all).sqrt()
}
