//! No folder and no file imports another in a circle.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::imports::{Imports, imports};
use super::{metadata, sources};

/// Circles that belong to their subject, by program and module.
const NATURAL: &[(&str, &[&str])] = &[
    // Values and operators of a language: each operator knows each kind of value.
    (
        "chat",
        &[
            "jinja::context",
            "jinja::python::args",
            "jinja::python::big",
            "jinja::python::compare",
            "jinja::python::containers",
            "jinja::python::functions",
            "jinja::python::number",
            "jinja::python::repeat",
            "jinja::python::text",
            "jinja::python::unicode",
            "jinja::python::value",
            "jinja::strftime",
        ],
    ),
    (
        "chat",
        &[
            "jinja::python::filters",
            "jinja::python::format",
            "jinja::python::methods",
            "jinja::python::strings",
        ],
    ),
    ("chat", &["jinja::engine::eval", "jinja::engine::names", "jinja::engine::run", "jinja::render"]),
    // A pattern keeps the caches that its searches leave.
    ("chat", &["parse::lazy_dfa", "parse::pattern"]),
    // A device knows its buffers, and what the plans of each device call.
    (
        "kernels",
        &[
            "buffer",
            "callee",
            "cpu",
            "cpu::callee",
            "cuda::blas",
            "cuda::callee",
            "cuda::memory",
            "cuda::module",
            "cuda::order",
            "cuda::plan::fault",
            "cuda::probe",
            "cuda::watermark",
            "device",
        ],
    ),
];

/// Circles that are still to be opened. This table may only shrink.
const OPEN: &[(&str, &[&str])] = &[
    ("kernels", &["cpu::amx", "cpu::packed_gemm", "cpu::product"]),
    ("kernels", &["cpu::attention::bounds", "cpu::attention::programs"]),
    (
        "reference",
        &["checkpoint::bytes", "checkpoint::error", "checkpoint::gguf", "checkpoint::gguf::problem"],
    ),
    ("reference", &["graph::collective", "graph::dim", "graph::op", "graph::print"]),
    (
        "reference",
        &[
            "llama::cache",
            "llama::classify",
            "llama::model",
            "llama::rows",
            "llama::weights",
            "lora::modules",
        ],
    ),
    ("reference", &["llama::config", "llama::images"]),
    ("reference", &["nf4::check", "nf4::parts"]),
    ("reference", &["schedule::error", "schedule::grid", "schedule::workload"]),
    ("reference", &["vision::error", "vision::patches", "vision::resample", "vision::size"]),
];

/// Natural circles of folders, or of files at the top: a buffer holds a GPU's allocation, and a device knows both.
const NATURAL_FOLDERS: &[(&str, &[&str])] = &[("kernels", &["buffer", "callee", "cpu", "cuda", "device"])];

/// Circles of folders, or of files at the top, that are still to be opened. This table may only shrink.
const OPEN_FOLDERS: &[(&str, &[&str])] =
    &[("reference", &["grad", "graph"]), ("reference", &["issues", "llama", "lora"])];

/// The programs of the workspace: their package, and the file that the compiler is given.
fn programs() -> Vec<(String, String)> {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("packages");
    let targets = packages.iter().flat_map(|package| {
        let targets = package["targets"].as_array().expect("targets").iter();
        targets.map(|target| {
            [&package["name"], &target["src_path"]].map(|text| text.as_str().expect("a text").to_owned())
        })
    });
    targets.map(<(String, String)>::from).collect()
}

/// Returns the circles of all programs, each with its package, among the nodes that `view` makes of their modules.
fn all_circles(view: impl Fn(Imports) -> Imports) -> BTreeSet<(String, BTreeSet<String>)> {
    let (mut files, mut found) = (0, BTreeSet::new());
    for (package, root) in programs() {
        let imports = imports(Path::new(&root));
        files += imports.len();
        found.extend(circles(&view(imports)).into_iter().map(|circle| (package.clone(), circle)));
    }
    assert!(files > 900, "{files} files are no longer all of them");
    found
}

fn expect_only(found: &BTreeSet<(String, BTreeSet<String>)>, tables: &[&[(&str, &[&str])]]) {
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
    let listed = tables.iter().copied().flatten().map(|(package, of)| (package.to_string(), names(of)));
    let listed: BTreeSet<_> = listed.collect();
    let new: Vec<_> = found.difference(&listed).collect();
    assert!(new.is_empty(), "open these circles: {new:#?}");
    let gone: Vec<_> = listed.difference(found).collect();
    assert!(gone.is_empty(), "these circles are open; delete their lines: {gone:#?}");
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    expect_only(&all_circles(|files| files), &[NATURAL, OPEN]);
}

/// Returns what the folders at the top of a program import of each other; a file at the top is one.
fn folders(files: Imports) -> Imports {
    let folder = |module: String| module.split("::").next().unwrap_or_default().to_owned();
    let mut folders = Imports::new();
    for (module, imported) in files.into_iter().filter(|(module, _)| module != "crate") {
        let own = folder(module);
        let others = imported.into_iter().map(folder).filter(|other| *other != own && other != "crate");
        folders.entry(own.clone()).or_default().extend(others);
    }
    folders
}

/// An import through a re-export, through a module in a file, or in a list is one; a root's of its children is none.
#[test]
fn imports_are_read_through_re_exports() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = [
        ("lib.rs", "mod a; mod b; pub use b::Part; /* use crate::c; */ const C: char = '\'';"),
        ("a/mod.rs", "mod inner; pub(crate) use inner::Kept; pub use inner::r as other;"),
        (
            "a/inner.rs",
            "use crate::{Part, a::{self as _, Kept}}; pub(in super::super) struct Kept; mod tests { use crate::b; }",
        ),
        ("b.rs", "mod system { fn f() { super::super::a::other(\"use crate::d;\") } } pub struct Part;"),
    ];
    std::fs::create_dir(folder.path().join("a")).expect("a folder");
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).expect("a file");
    }
    let imports = imports(&folder.path().join("lib.rs"));
    let expected = [("a", &[][..]), ("a::inner", &["a", "b"]), ("b", &["a::inner"]), ("crate", &[])];
    let expected = expected.map(|(name, names)| {
        (name.to_owned(), names.iter().map(ToString::to_string).collect::<BTreeSet<_>>())
    });
    assert_eq!(imports, BTreeMap::from(expected));
    assert_eq!(circles(&imports), sets(&[&["a::inner", "b"]]));
}

/// What a folder's modules use of each other, by the first name after `crate::`, or after `super::` in a folder of
/// files. A line that is a comment uses nothing. What a root hands on of its modules they name where it is, so that
/// none is used unseen.
fn uses(base: &str, prefix: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, text) in sources().filter(|(path, _)| !path.ends_with("/tests.rs")) {
        let Some(inside) = path.strip_prefix(base) else { continue };
        let module = inside.split(['/', '.']).next().unwrap_or(inside).to_owned();
        let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        let code = code.join("\n");
        let named = code.match_indices(prefix).map(|(at, found)| &code[at + found.len()..]);
        let others: Vec<String> = named.flat_map(first_names).filter(|name| *name != module).collect();
        let is_a_type = |name: &&String| name.is_empty() || name.starts_with(char::is_uppercase);
        let handed_on = others.iter().find(is_a_type).filter(|_| prefix == "crate::");
        assert_eq!(handed_on, None, "{path}: expected the module after `crate::`");
        uses.entry(module).or_default().extend(others);
    }
    let modules: BTreeSet<String> = uses.keys().cloned().collect();
    for names in uses.values_mut() {
        names.retain(|name| modules.contains(name));
    }
    uses
}

/// The first name of a path, or of each path of a list in braces.
fn first_names(path: &str) -> Vec<String> {
    let name = |path: &str| path.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let Some(list) = path.strip_prefix('{') else { return vec![name(path)] };
    let (mut depth, mut begin, mut names) = (0, true, Vec::new());
    for (at, letter) in list.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => begin = true,
            ' ' | '\n' => {}
            _ if begin => {
                names.push(name(&list[at..]));
                begin = false;
            }
            _ => {}
        }
    }
    names
}

/// Returns the modules that each module reaches, directly or through others.
fn reached(imports: &Imports) -> BTreeMap<&String, BTreeSet<&String>> {
    let of = |module| {
        let (mut reached, mut open) = (BTreeSet::new(), vec![module]);
        while let Some(module) = open.pop() {
            open.extend(imports.get(module).into_iter().flatten().filter(|name| reached.insert(*name)));
        }
        (module, reached)
    };
    imports.keys().map(of).collect()
}

/// Returns the sets of modules each of which reaches every other one.
fn circles(imports: &Imports) -> BTreeSet<BTreeSet<String>> {
    let reached = reached(imports);
    let of = |module: &&String| {
        let around = reached[module]
            .iter()
            .filter(|other| reached.get(**other).is_some_and(|all| all.contains(*module)));
        around.map(|other| (*other).clone()).collect::<BTreeSet<_>>()
    };
    reached.keys().map(of).filter(|circle| !circle.is_empty()).collect()
}

fn sets(named: &[&[&str]]) -> BTreeSet<BTreeSet<String>> {
    named.iter().map(|names| names.iter().map(|name| (*name).to_owned()).collect()).collect()
}

/// The folders of the compiler follow its pipeline, so each can be read with those before it alone.
#[test]
fn no_folders_import_each_other_in_a_circle() {
    expect_only(&all_circles(folders), &[NATURAL_FOLDERS, OPEN_FOLDERS]);
    let rooms = ["runtime/compiler/", "runtime/", "chat/", "", "trainer/"];
    for base in rooms.map(|room| format!("challenges/{room}src/")) {
        let base = base.as_str();
        let uses = uses(base, "crate::");
        assert!(uses.len() > 2, "{base}: {uses:?}");
        assert_eq!(circles(&uses), sets(&[]), "{base}");
    }
    let parse = uses("challenges/chat/src/parse/", "super::");
    assert!(parse.values().map(BTreeSet::len).sum::<usize>() > 20, "{parse:?}");
    let cached = ["lazy_dfa", "pattern"]; // a pattern keeps the caches that its searches leave
    assert_eq!(circles(&parse), sets(&[&cached]), "the files of the parser");
    let grader = uses("grader/lib/src/", "crate::");
    assert!(grader.len() > 40, "{grader:?}");
    assert_eq!(circles(&grader), sets(&[]), "the grader");
    // A buffer holds a GPU's allocation, and a link the forms of a callee for each device. Plans lie below all of them.
    let kernels = uses("kernels/src/", "crate::");
    let devices = ["buffer", "callee", "cpu", "cuda", "device"];
    assert_eq!(circles(&kernels), sets(&[&devices]), "the machine");
    let below = ["comm", "error", "tile"].map(str::to_owned);
    assert_eq!(kernels["plan"], BTreeSet::from(below), "a plan names no device");
    let mut uses = uses("reference/src/", "crate::");
    for used in uses.values_mut() {
        used.remove("oracles"); // counters of calls, which know nothing
    }
    let bytes = ["file_kind", "json"].map(str::to_owned);
    assert_eq!(uses["checkpoint"], BTreeSet::from(bytes), "a reader of files knows no format built on it");
    let below = ["checkpoint", "dtype"].map(str::to_owned);
    assert_eq!(uses["nf4"], BTreeSet::from(below), "a format knows files, and no graph");
}

#[test]
fn circle_leaves_out_its_users() {
    let pair = |a: &str, b: &str| (a.to_owned(), BTreeSet::from([b.to_owned()]));
    let uses = [pair("a", "b"), pair("b", "a"), pair("c", "a"), pair("d", "e")];
    assert_eq!(circles(&BTreeMap::from(uses)), sets(&[&["a", "b"]]));
    assert_eq!(first_names("{a, b::{c, d},\n    e::f};"), ["a", "b", "e"]);
    assert_eq!(first_names("a_1::{b, c};"), ["a_1"]);
}
