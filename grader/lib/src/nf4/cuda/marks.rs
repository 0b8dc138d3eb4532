//! Counters in PTX: which of an attempt's instructions are executed, and how often.
//!
//! A hint that stands in a branch which no thread takes proves nothing. So the PTX of the attempt gets a counter
//! in front of every instruction of interest - each block of inline PTX (the compiler brackets them with
//! comments), each load and store with a cache hint - and the counting twin is run once on a weight of its own.
//!
//! Reads: PTX ISA, "Cache Operators", "Cache Eviction Priority Hints", "createpolicy".

use std::fmt::Write;

/// What an instruction of interest is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The begin of a block of inline PTX.
    Inline,
    /// A load from global memory with a hint, and the bytes that a thread loads.
    HintedLoad(u32),
    /// A store to global memory with a hint, and the bytes that a thread stores.
    HintedStore(u32),
}

/// An instruction of interest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub kind: Kind,
    /// The instruction as it stands in the PTX.
    pub text: String,
    line: usize,
}

/// The global that holds the counters.
pub(super) const COUNTERS: &str = "warpbook_marks";

/// Suffixes of an instruction that are hints on how long a cache shall keep the data.
const HINTS: [&str; 10] = [
    ".cs",
    ".lu",
    ".evict_first",
    ".evict_last",
    ".evict_unchanged",
    ".no_allocate",
    ".L1::no_allocate",
    ".L1::evict_first",
    ".L2::evict_first",
    ".L2::cache_hint",
];

/// The instructions of interest of a PTX text, in order.
pub(super) fn marks(ptx: &str) -> Vec<Mark> {
    let lines: Vec<&str> = ptx.lines().map(str::trim).collect();
    let mark = |(line, text): (usize, &&str)| {
        let kind = if *text == "// begin inline asm" { own(&lines[line..]) } else { hinted(text) };
        kind.map(|kind| Mark { kind, text: (*text).to_owned(), line })
    };
    lines.iter().enumerate().filter_map(mark).collect()
}

/// A block of inline PTX, unless it is the prelude's: those name it in their first line.
fn own(block: &[&str]) -> Option<Kind> {
    let of_the_prelude = block.get(1).is_some_and(|line| line.contains("warpbook.cuh"));
    (!of_the_prelude).then_some(Kind::Inline)
}

/// A load or store with a hint.
fn hinted(text: &str) -> Option<Kind> {
    let (_, instruction) = guard(text);
    let name = instruction.split_whitespace().next()?;
    let mut parts = name.split('.');
    let base = parts.next()?;
    let hinted = HINTS.iter().any(|hint| has(name, hint));
    if !hinted || !name.contains(".global") && !name.starts_with("cp.async") {
        return None;
    }
    let bytes = bytes(instruction, name);
    match base {
        "ld" | "cp" if !name.starts_with("cp.async.bulk.global") => Some(Kind::HintedLoad(bytes)),
        "st" | "cp" => Some(Kind::HintedStore(bytes)),
        _ => None,
    }
}

/// Whether an instruction's name has a suffix as a whole.
fn has(name: &str, suffix: &str) -> bool {
    name.match_indices(suffix).any(|(at, _)| {
        let after = name[at + suffix.len()..].chars().next();
        after.is_none_or(|c| !c.is_ascii_alphanumeric() && c != '_')
    })
}

/// Bytes that one thread moves: the type's size times the vector's length, or a copy's size operand.
fn bytes(instruction: &str, name: &str) -> u32 {
    if name.starts_with("cp.async") {
        let mut sizes =
            instruction.trim_end_matches(';').split(',').filter_map(|part| part.trim().parse().ok());
        return sizes.next_back().unwrap_or(0);
    }
    let lanes = if name.contains(".v8") {
        8
    } else if name.contains(".v4") {
        4
    } else {
        1
    };
    let lanes = if name.contains(".v2") { 2 } else { lanes };
    let digits = name.rsplit('.').next().unwrap_or_default().trim_start_matches(|c: char| c.is_alphabetic());
    lanes * digits.parse::<u32>().unwrap_or(0) / 8
}

/// A predicate in front of an instruction, and the rest.
fn guard(text: &str) -> (&str, &str) {
    if !text.starts_with('@') {
        return ("", text);
    }
    text.split_once(char::is_whitespace).map_or(("", text), |(guard, rest)| (guard, rest.trim_start()))
}

/// The PTX with a counter in front of each mark.
pub(super) fn marked(ptx: &str) -> String {
    let marks = marks(ptx);
    let mut next = marks.iter().enumerate().peekable();
    let mut text = String::new();
    for (line, written) in ptx.lines().enumerate() {
        if let Some((number, mark)) = next.next_if(|(_, mark)| mark.line == line) {
            let (predicate, _) = guard(&mark.text);
            let _ = writeln!(
                text,
                "{{ .reg .b64 %counter; mov.u64 %counter, {COUNTERS}+{}; {predicate} red.global.add.u64 [%counter], 1; }}",
                number * 8
            );
        }
        text.push_str(written);
        text.push('\n');
        if written.trim_start().starts_with(".address_size") {
            let _ = writeln!(text, ".visible .global .align 8 .b64 {COUNTERS}[{}];", marks.len().max(1));
        }
    }
    text
}

/// The part of a PTX text that is one kernel, and every function that it could call.
pub(super) fn entry_of(ptx: &str, name: &str) -> String {
    let mut inside_another = false;
    let keep = |line: &&str| {
        if line.contains(".entry ") {
            inside_another = !line.contains(&format!(" {name}("));
        } else if line.contains(".func ") {
            inside_another = false;
        }
        !inside_another
    };
    let lines: Vec<&str> = ptx.lines().filter(keep).collect();
    lines.join("\n")
}

/// Bytes of a module's writable globals.
pub(super) fn global_bytes(ptx: &str) -> usize {
    let declared = ptx.lines().map(str::trim).filter(|line| line.contains(".global ") && line.ends_with(';'));
    let of = |line: &str| {
        let declaration = line.split('=').next().unwrap_or_default().trim_end_matches(';');
        let mut bits = declaration.split_whitespace().filter_map(|word| {
            let digits = word.strip_prefix('.')?.trim_start_matches(|c: char| c.is_alphabetic());
            (word.len() <= 5 && !word.starts_with(".align")).then_some(digits.parse::<usize>().ok())?
        });
        let count: usize = declaration
            .split('[')
            .skip(1)
            .filter_map(|part| part.split(']').next()?.trim().parse::<usize>().ok())
            .product();
        bits.next_back().unwrap_or(0) / 8 * count
    };
    declared.filter(|line| line.starts_with('.')).map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = "\
.version 8.1
.target sm_90
.address_size 64
.global .align 4 .u32 warpbook_hole;
.visible .global .align 16 .b8 kept[4096];
.visible .entry k()
{
\t// begin inline asm
\tld.global.nc.L1::no_allocate.u32 %r1, [%rd1];
\t// end inline asm
\t// begin inline asm
\t// warpbook.cuh
\tcvt.rn.bf16.f32 %h1, %f1;
\t// end inline asm
\t@%p1 st.global.cs.v4.u32 [%rd2], {%r1, %r2, %r3, %r4};
\tst.global.v4.u32 [%rd2], {%r1, %r2, %r3, %r4};
\tld.param.u64 %rd1, [k_param_0];
\tcp.async.cg.shared.global.L2::cache_hint [%r1], [%rd3], 16, %rd4;
}
";

    #[test]
    fn hints_and_inline_blocks_are_found_with_their_bytes() {
        let kinds: Vec<Kind> = marks(PTX).into_iter().map(|mark| mark.kind).collect();
        let want = [Kind::Inline, Kind::HintedLoad(4), Kind::HintedStore(16), Kind::HintedLoad(16)];
        assert_eq!(kinds, want);
    }

    #[test]
    fn a_counter_stands_in_front_of_each_and_keeps_its_predicate() {
        let marked = marked(PTX);
        assert!(marked.contains(".visible .global .align 8 .b64 warpbook_marks[4];"), "{marked}");
        assert!(marked.contains("warpbook_marks+16; @%p1 red.global.add.u64"), "{marked}");
        assert_eq!(marked.lines().count(), PTX.lines().count() + 5);
    }

    #[test]
    fn globals_are_counted_in_bytes() {
        assert_eq!(global_bytes(PTX), 4 + 4096);
    }
}
