//! Texts that the screen refuses, and texts that it accepts.

use super::look_through;
use crate::courses::COURSES;
use crate::stub::{self, Language};

fn describe(text: &str) -> Option<(usize, String)> {
    look_through(text, Language::Rust).err().map(|refused| (refused.line, refused.what))
}

#[test]
fn every_solution_and_every_stub_is_let_through() {
    for course in &COURSES {
        let typed = course.solution().replace("Solution", "Exercise");
        let stub = stub::derive(course.solution(), course.language).expect("sound markers");
        for text in [typed, stub] {
            assert_eq!(look_through(&text, course.language), Ok(()), "{}", course.name);
        }
    }
}

/// Texts, each with what is refused in it.
const REFUSED: &[(&str, &str)] = &[
    ("#[unsafe(link_section = \".init_array\")] static F: fn() = f;", "link_section"),
    ("#[no_mangle] pub fn write() {}", "no_mangle"),
    ("#[unsafe(no_mangle)] pub fn clock_gettime() {}", "no_mangle"),
    ("#[unsafe(export_name = \"write\")] fn w() {}", "export_name"),
    ("macro_rules! m { ($m:meta) => { #[$m] fn write() {} } } m!(no_mangle);", "no_mangle"),
    ("extern \"C\" { fn _exit(code: i32) -> !; }", "extern"),
    ("unsafe extern \"C\" { fn _exit(code: i32) -> !; }", "extern"),
    ("extern crate std as s;", "extern"),
    ("fn f() { std::process::exit(0) }", "std::process"),
    ("fn f() { ::std::process::exit(0) }", "std::process"),
    ("fn f() { r#std::r#process::exit(0) }", "std::process"),
    ("fn f() { std :: /* a comment */ process::exit(0) }", "std::process"),
    ("use std::{collections::BTreeMap, process};", "std::process"),
    ("use std::{collections::{BTreeMap, btree_map::Entry}, fs::File};", "std::fs"),
    ("use std::{io::{self, Write}, os::fd::FromRawFd};", "std::os"),
    ("use std as s;", "std"),
    ("use std::{self as s};", "std"),
    ("use ::std;", "std"),
    ("use std::*;", "std::*"),
    ("use std::{io, *};", "std"),
    ("use crate::std::fs;", "std::fs"),
    ("use std::env;", "std::env"),
    ("use std::net::TcpStream;", "std::net"),
    ("use std::alloc::System;", "std::alloc"),
    ("macro_rules! m { ($a:ident) => { std::$a::exit(0) } } m!(process);", "std::$"),
    ("macro_rules! m { ($a:ident) => { $a::process::exit(0) } } m!(s);", "::process"),
    ("macro_rules! m { ($($a:tt)*) => { $($a)*::process::exit(0) } } m!(s);", "::process"),
    ("macro_rules! m { ($a:ident, $b:ident) => { $a::$b::exit(0) } } m!(s, p);", "$::$"),
    ("macro_rules! m { ($a:ident $($b:tt)*) => { $a $($b)* } } m!(s, ::process);", "::process"),
    ("macro_rules! m { ($a:ident) => { } } m!(std);", "std"),
    ("macro_rules! a { ($($t:tt)*) => { core::arch::asm!($($t)*) } }", "asm!: $"),
    ("fn f() { m!('r\"\\\"\" std::process::exit(0) \"x\") }", "std::process"),
    ("use std::path::Path;", "std::path"),
    ("macro_rules! m { ($a:ident) => { $a!(\"/etc/passwd\") } }", "$a!"),
    ("const S: &str = include_str!(\"solution.rs\");", "include_str"),
    ("include!(\"solution.rs\");", "include"),
    ("const S: &str = env!(\"HOME\");", "env!"),
    ("const S: Option<&str> = option_env!(\"HOME\");", "option_env"),
    ("#[path = \"solution.rs\"] mod s;", "path = "),
    ("#[cfg_attr(all(), path = \"solution.rs\")] mod s { }", "path = "),
    ("mod solution;", "mod solution;"),
    ("use kernels::bytes;", "kernels::bytes"),
    ("fn f() { kernels::bytes::reset_peak() }", "kernels::bytes"),
    ("use kernels::{Cpu, bytes as b};", "kernels::bytes"),
    ("use kernels as k;", "kernels"),
    ("use grader::Attempts;", "grader"),
    ("fn f() { reference::atomic_write::write(p, b); }", "reference::atomic_write"),
    ("use reference::{atomic_write as a, graph::Tape};", "reference::atomic_write"),
    ("use reference::checkpoint::Checkpoint;", "reference::checkpoint"),
    ("use reference::llama::{Storage, Llama};", "reference::llama::Llama"),
    ("fn f() { reference::llama::hub::find(\"x\"); }", "reference::llama::hub"),
    ("use reference::llama as l;", "reference::llama"),
    ("use reference::lora::Adapter;", "reference::lora::Adapter"),
    ("use kernels::{Cpu, cuda::Gpu};", "kernels::cuda"),
    ("use compiler::{front::capture::Capture, tune};", "compiler::tune"),
    ("fn f() { challenges::nf4::Solution.unpack(a, b) }", "Solution"),
    ("use challenges::nf4::{Nf4, Solution as S};", "Solution"),
    ("use reference::{nf4, oracles::NF4};", "reference::oracles"),
    ("fn f() -> u64 { challenges::given::nf4_calls() }", "challenges::given"),
    ("fn f() { unsafe{ core::arch::asm!(\"mov eax, 60\", \"syscall\") } }", "asm!: syscall"),
    ("fn f() { unsafe{ core::arch::asm!(\".byte 0x0f, 0x05\") } }", "asm!: a directive"),
];

#[test]
fn code_outside_steps_is_refused_with_its_line() {
    for &(text, what) in REFUSED {
        let below = format!("//! An attempt.\n\n/* std::fs */\n{text}\n");
        assert_eq!(describe(&below), Some((4, what.to_owned())), "{text}");
    }
}

/// Ways to find out who calls, what time it is, and to work on after the call.
const RECOGNISED: &[(&str, &str)] = &[
    ("fn f() { std::backtrace::Backtrace::force_capture(); }", "std::backtrace"),
    ("use std::backtrace::Backtrace;", "std::backtrace"),
    ("use std::{backtrace as b, fmt};", "std::backtrace"),
    ("fn f() { core::panic::Location::caller(); }", "::caller"),
    ("use std::panic::Location; fn f() { Location::caller(); }", "::caller"),
    ("use std::panic::Location as L; fn f() { <L>::caller(); }", "::caller"),
    ("#[track_caller] fn f() {}", "track_caller"),
    ("fn f<T>(_: T) { std::any::type_name::<T>(); }", "type_name"),
    ("use core::any::type_name_of_val as n;", "type_name_of_val"),
    ("fn f() { std::thread::current().name(); }", "std::thread::current"),
    ("use std::thread; fn f() { thread::current().id(); }", "std::thread::current"),
    ("use std::thread::{self, Builder};", "std::thread::Builder"),
    ("use std::thread; fn f() { thread::spawn(|| loop {}); }", "std::thread::spawn"),
    ("fn f() { ::std::thread::spawn(|| loop {}); }", "std::thread::spawn"),
    ("use std::thread as t;", "std::thread"),
    ("use std::thread; fn f() { self::thread::spawn(|| ()); }", "std::thread::spawn"),
    ("use std::thread; fn f() { crate::thread::spawn(|| ()); }", "std::thread::spawn"),
    ("mod a { pub use std::thread; } fn f() { a::thread::spawn(|| ()); }", "std::thread::spawn"),
    ("use std::thread; use thread as t;", "std::thread"),
    ("use std::thread; use self::{thread as t};", "std::thread"),
    ("use std::thread; use thread::*;", "std::thread::*"),
    ("use std::thread; macro_rules! m { ($a:ident) => { $a::spawn(|| ()) } } m!(thread);", "::spawn"),
    ("macro_rules! m { ($a:ident) => { $a::Instant::now() } } m!(time);", "::Instant"),
    ("macro_rules! m { ($($a:tt)*) => { std::thread $($a)* } } m!(::scope(|| ()));", "std::thread"),
    ("macro_rules! m { ($a:ident) => { std::thread::$a() } } m!(current);", "std::thread::$"),
    ("use std::thread; macro_rules! m { ($a:ident) => { thread::$a() } } m!(current);", "std::thread::$"),
    ("use std::thread::{self as t};", "std::thread"),
    ("use std::{thread as t, fmt};", "std::thread"),
    ("use std::thread::*;", "std::thread::*"),
    ("fn f() { rayon::spawn(|| loop {}); }", "rayon::spawn"),
    ("use rayon::{ThreadPoolBuilder, prelude::*};", "rayon::ThreadPoolBuilder"),
    ("use rayon as r;", "rayon"),
    ("use std::time::{Duration, Instant};", "std::time::Instant"),
    ("use core::time; use std::time; fn f() { time::SystemTime::now(); }", "std::time::SystemTime"),
    ("use kernels::cpu::{Tick, host};", "kernels::cpu::Tick"),
    ("use kernels::cpu; fn f() { cpu::Tick::now(); }", "kernels::cpu::Tick"),
    ("fn f() -> u64 { unsafe{ core::arch::x86_64::_rdtsc() } }", "_rdtsc"),
    ("fn f() { std::panic::set_hook(Box::new(|_| ())); }", "std::panic::set_hook"),
    ("use core::panic; fn f() { panic::catch_unwind(|| ()); }", "std::panic::catch_unwind"),
    ("use core as c;", "core"),
    ("use core::*;", "core::*"),
];

#[test]
fn recognising_the_caller_is_refused() {
    for &(text, what) in RECOGNISED {
        assert_eq!(describe(text), Some((1, what.to_owned())), "{text}");
    }
}

/// Wraps a statement in what a text needs around it.
fn assembly(arguments: &str) -> String {
    format!("fn f() {{ unsafe{{ core::arch::asm!({arguments}) }} }}")
}

/// Arguments of `asm!`, each with what is refused in it.
const NO_ASSEMBLY: &[(&str, &str)] = &[
    // a symbol, by every way to name one
    (r#""call warpbook_nf4""#, "call"),
    (r#""call {}", sym f"#, "sym"),
    (r#""call {f}", f = sym f"#, "sym"),
    (r#""jmp warpbook_nf4""#, "jmp warpbook_nf4"),
    (r#""jne warpbook_nf4""#, "jne warpbook_nf4"),
    (r#""lea rax, [rip + warpbook_nf4]""#, "rip"),
    (r#""mov rax, offset warpbook_nf4""#, "offset"),
    (r#""movabs rax, warpbook_nf4""#, "warpbook_nf4"),
    (r#""mov {}, warpbook_nf4", out(reg) x"#, "warpbook_nf4"),
    (r#""mov rax, _ZN9solutions3nf4E@GOTPCREL""#, "'@'"),
    (r#""bl warpbook_nf4""#, "bl"),
    (r#""b warpbook_nf4""#, "b warpbook_nf4"),
    (r#""adrp x0, warpbook_nf4""#, "adrp"),
    (r#""ldr x0, =warpbook_nf4""#, "="),
    // an address instead of a symbol
    (r#""call rax""#, "call"),
    (r#""call {}", in(reg) f"#, "call"),
    (r#""jmp rax""#, "jmp rax"),
    (r#""jmp {}", in(reg) f"#, "jmp @"),
    (r#""jmp 0x401000""#, "jmp 0x401000"),
    (r#""push {}", "ret", in(reg) f"#, "push"),
    (r#""ret""#, "ret"),
    (r#""mov [rsp], {}", in(reg) f"#, "rsp"),
    (r#""blr {}", in(reg) f"#, "blr"),
    (r#""br x0""#, "br"),
    (r#""jmp 1f", "nop""#, "jmp 1f"),
    // a system call, plain and hidden
    (r#""mov eax, 60", "syscall""#, "syscall"),
    (r#""mov eax, 60; syscall""#, "syscall"),
    (
        r#""mov eax, 60
syscall""#,
        "syscall",
    ),
    (r#""1: syscall""#, "syscall"),
    (r#""1: 2: syscall""#, "syscall"),
    (r#""lock syscall""#, "syscall"),
    (r#""rep rep syscall""#, "syscall"),
    (
        r#""nop // none
syscall""#,
        "syscall",
    ),
    (
        r#""nop # none
syscall""#,
        "#",
    ),
    (r#""nop /* none */; syscall""#, "/*"),
    (r#""SYSCALL""#, "syscall"),
    (r#""sysenter""#, "sysenter"),
    (r#""int 0x80""#, "int"),
    (r#""svc #0""#, "svc"),
    (r#""nop %% svc #0""#, "%"),
    (r#""\x73yscall""#, "\\x"),
    ("\"sys\\\n    call\"", "syscall"),
    (r#"concat!("sys", "call")"#, "concat"),
    ("stringify!(syscall)", "stringify"),
    ("code!()", "code"),
    (r#"r"syscall""#, "syscall"),
    (r##"r#"syscall"#"##, "syscall"),
    (r#""syscall", options(att_syntax)"#, "att_syntax"),
    (r#""nop", options(nostack, raw)"#, "raw"),
    (r#""nop", options(noreturn)"#, "noreturn"),
    // bytes and directives
    (r#"".byte 0x0f, 0x05""#, "a directive"),
    (r#""1: .byte 0x0f, 0x05""#, "a directive"),
    (r#""2: 3: .long 0xd4000001""#, "a directive"),
    (r#""nop; .inst 0xd4000001""#, "a directive"),
    (r#"".globl write", "write:", "nop""#, "write:"),
    (r#""write: nop""#, "write:"),
    (r#"".Lx: nop""#, ".Lx:"),
    (r#"".section .init_array""#, "a directive"),
    (r#"".set write, 4""#, "a directive"),
    (r#""write = 4""#, "write"),
    (r#"".macro m", "syscall", ".endm", "m""#, "a directive"),
    // segments, clocks, control
    (r#""mov rax, fs:[0]""#, "mov rax, fs:"),
    (r#""rdtsc""#, "rdtsc"),
    (r#""rdtscp""#, "rdtscp"),
    (r#""mrs {}, cntvct_el0", out(reg) x"#, "mrs"),
    (r#""cpuid""#, "cpuid"),
    (r#""vmcall""#, "vmcall"),
    (r#""hlt""#, "hlt"),
    (r#""{} rax", const 5"#, "@ rax"),
    (r#""jmp {}", label { }"#, "label"),
];

#[test]
fn unlisted_assembly_is_refused() {
    for &(arguments, what) in NO_ASSEMBLY {
        let found = describe(&assembly(arguments)).map(|(_, what)| what);
        let expected = format!("asm!: {what}");
        let found = found.map(|found| found.to_lowercase());
        assert_eq!(found, Some(expected.to_lowercase()), "{arguments}");
    }
}

/// Arguments of `asm!` that a step may have.
const ASSEMBLY: &[&str] = &[
    r#""vmovntdq [{}], {}", in(reg) p, in(zmm_reg) z"#,
    r#""vpermw {a}, {b}, {c}", a = out(zmm_reg) a, b = in(zmm_reg) b, c = in(zmm_reg) c, options(nostack, pure, nomem)"#,
    r#""2:", "movdqu xmm0, [{p} + {i} * 8]", "movntdq xmmword ptr [{q} + 16], xmm0", "add {i}, 2", "cmp {i}, {n}",
       "jb 2b", "sfence", p = in(reg) p, q = in(reg) q, i = inout(reg) i, n = in(reg) n, out("xmm0") _"#,
    r#""2: dec {n}; jnz 2b // count down", n = inout(reg) n"#,
    r#""vaddps zmm0 {{k1}} {{z}}, zmm1, zmm2", "vcvtps2ph [{}], zmm0, 0x8", in(reg) p, clobber_abi("C")"#,
    r#""rep movsb", inout("rcx") n => _, inout("rsi") p => _, inout("rdi") q => _"#,
    r#""lock xadd [{}], {:e}", in(reg) p, inout(reg) x"#,
    r#""stnp {a:q}, {b:q}, [{to}]", a = in(vreg) a, b = in(vreg) b, to = in(reg) p, options(nostack, preserves_flags)"#,
    r#""ld1 {{v0.16b, v1.16b}}, [{p}], #32", "tbl v2.16b, {{v0.16b}}, v1.16b", "stp q0, q2, [{q}, #-32]!", p = inout(reg) p, q = in(reg) q"#,
    r#""2:", "subs {n}, {n}, #1", "fmul v0.4s, v1.4s, v2.s[0]", "b.ne 2b", "cbz {n}, 3f", "3:", n = inout(reg) n"#,
    r#""mov {x:w}, #{n}", "lsl x1, x2, #4", "add x0, x1, w2, uxtw #2", x = out(reg) x, n = const 4 + 1"#,
    r#""prefetcht0 [{}]", in(reg) p.as_ptr().add(f(1, 2))"#,
];

#[test]
fn listed_assembly_is_accepted() {
    for arguments in ASSEMBLY {
        assert_eq!(describe(&assembly(arguments)), None, "{arguments}");
    }
}

/// Texts that only look like those.
const HONEST: &[&str] = &[
    "// std::process::exit(0), #[no_mangle], extern",
    "/* /* std::fs */ extern \"C\" */ fn f() {}",
    "/// `std::env` is not used\nfn f() {}",
    "const S: &str = \"std::process::exit(0) extern no_mangle\";",
    "const S: &str = r#\"use std::fs; \" include!(\"x\")\"#;",
    "const S: &[u8] = b\"extern\\\"libc\";",
    "use std::collections::{BTreeMap, BTreeSet, HashMap};",
    "use std::{fmt::Write as _, ops::Range, sync::{Arc, Mutex}};",
    "fn f<'a>(process: &'a str, env: char) -> bool { env == 'x' && process.len() > '\\'' as usize }",
    "fn f(fs: usize, net: usize, os: usize) -> usize { let grader = fs; grader + net + os }",
    "struct S { path: String } fn f(s: &mut S) { s.path = String::new(); let path = \"x\"; }",
    "use kernels::{Cpu, Vector}; use kernels::tile::{self, Op as Tile, Value};",
    "mod inner { pub fn process() {} } fn f() { inner::process() }",
    "fn f() { unsafe{ core::arch::asm!(\"vmovntdq [{}], {}\", in(reg) p, in(zmm_reg) z) } }",
    "use std::thread; fn f() { thread::scope(|s| { s.spawn(|| ()); }); }",
    "use std::thread::{self, ScopedJoinHandle}; use std::panic::Location; use std::time::{self, Duration};",
    "use kernels::cpu; fn f() { cpu::host(); } fn g(caller: u8, core: u8) -> u8 { caller + core }",
    "fn f(time: &[f32], thread: usize, cpu: &u8) -> f32 { time[thread] + cpu.time() as f32 + thread as f32 }",
    "use core::arch::x86_64::*; use std::arch::is_x86_feature_detected; use rayon::prelude::*;",
    "static TABLE: [f32; 2] = [0.0; 2]; const N: usize = core::mem::size_of::<f32>();",
    "fn f() { println!(\"{}\", std::mem::size_of::<u8>()); std::thread::scope(|s| ()); }",
    "fn f(var: f64) -> f64 { let std = var.sqrt(); let kernels = std; kernels }",
    "enum E { A } macro_rules! m { ($v:ident) => { E::$v } } fn f<'r>(x: &'r str) -> E { m!(A) }",
    "macro_rules! m { ($t:ty) => { <$t>::process(); $t::MAX; Vec::<$t>::new() } }",
    "macro_rules! m { ($a:expr) => { $a + $crate::one() } }",
    "use reference::llama::Storage; use reference::fsdp::{self, Cut}; use reference::schedule::{self, Rule};",
    "use challenges::issues::{chat::Chat, vision::Vision}; use challenges::loss::problem::row_dim;",
    "fn f(reference: &[f64]) -> usize { let checkpoint = reference.len(); checkpoint }",
];

#[test]
fn similar_honest_texts_are_accepted() {
    for &text in HONEST {
        assert_eq!(describe(text), None, "{text}");
    }
}

#[test]
fn any_text_is_looked_through_to_its_end() {
    for text in
        ["", "'", "\"", "r#", "r#\"", "b'", "/*", "'\\", "std", "use std::{", "asm!", "$", "é'é'", "std::"]
    {
        _ = describe(text);
    }
}

#[test]
fn kernels_take_in_no_file_by_its_path() {
    let describe = |text: &str| look_through(text, Language::Cuda).err().map(|refused| refused.line);
    assert_eq!(describe("#include \"warpbook.cuh\"\n#include <cuda_fp16.h>\nasm volatile(\"exit;\");"), None);
    for text in ["#include \"/etc/passwd\"", "# include <../x.h>", "#include NAME", "#inc\\\nlude \"/x\""] {
        assert!(describe(text).is_some(), "{text}");
    }
}
