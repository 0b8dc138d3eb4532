#[path = "../../tests/src/plans.rs"]
#[allow(dead_code)]
mod plans;
use kernels::{Cpu, cuda::Gpu};
fn close(a: &[u8], b: &[u8]) -> Option<usize> {
    for at in (0..a.len() / 4 * 4).step_by(4) {
        let (x, y) = ([a[at], a[at + 1], a[at + 2], a[at + 3]], [b[at], b[at + 1], b[at + 2], b[at + 3]]);
        if x == y {
            continue;
        }
        let (f, g) = (f32::from_le_bytes(x), f32::from_le_bytes(y));
        if f.is_nan() && g.is_nan() {
            continue;
        }
        if (f - g).abs() <= 2e-5 * f.abs().max(g.abs()).max(1.0) {
            continue;
        }
        let (i, j) = (i32::from_le_bytes(x), i32::from_le_bytes(y));
        if i.abs_diff(j) <= 1 {
            continue;
        }
        let halves = |k: usize| {
            let (p, q) = (u16::from_le_bytes([x[k], x[k + 1]]), u16::from_le_bytes([y[k], y[k + 1]]));
            p.abs_diff(q) <= 2 || (p & 0x7fff > 0x7c00 && q & 0x7fff > 0x7c00)
        };
        if halves(0) && halves(2) {
            continue;
        }
        if (0..4).all(|k| x[k].abs_diff(y[k]) <= 1) {
            continue;
        }
        return Some(at);
    }
    None
}
fn main() {
    let count: usize = std::env::args().nth(1).map_or(3000, |n| n.parse().unwrap());
    let mode = std::env::args().nth(2).unwrap_or_default();
    let mut state = 1u64;
    let gpu = Gpu::probe();
    let gpu = match gpu {
        Ok(gpu) => Some(gpu),
        Err(e) => {
            println!("{e}");
            None
        }
    };
    let cpu = Cpu::with_threads(1);
    let (mut n, mut kinds, mut bad) = (0, std::collections::BTreeMap::new(), 0);
    let begin = std::time::Instant::now();
    for case in 0..count {
        let bytes: Vec<u8> = (0..400)
            .map(|_| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 33) as u8
            })
            .collect();
        let plan = plans::drawn(&bytes);
        if mode == "texts" {
            if let Ok(text) = kernels::cuda::text_of(&plan) {
                std::fs::write(format!("/tmp/texts/{n}.cu"), text).unwrap();
                n += 1;
            }
            continue;
        }
        let Some(gpu) = &gpu else { return };
        let (a, x) = plans::ran(plan.clone(), &cpu, 256);
        if a == plans::Outcome::Refused || a == plans::Outcome::Large {
            continue;
        }
        let (b, y) = plans::ran(plan.clone(), gpu, 256);
        *kinds.entry(format!("{a:?} {b:?}")).or_insert(0) += 1;
        if b == plans::Outcome::Refused {
            continue;
        }
        n += 1;
        let wrong = a != b || x.iter().zip(&y).any(|(x, y)| close(x, y).is_some());
        if wrong {
            bad += 1;
            if bad <= 6 {
                println!("case {case}: {a:?} {b:?}\n{plan}");
                for step in &plan.steps {
                    if let kernels::plan::Step::Pass { program, .. } = step {
                        println!("{program}");
                    } else {
                        println!("{step:?}");
                    }
                }
                for (x, y) in x.iter().zip(&y) {
                    if let Some(at) = close(x, y) {
                        println!(
                            "at {at}: cpu {:?} gpu {:?} as f32 {} {}",
                            &x[at..at + 4],
                            &y[at..at + 4],
                            f32::from_le_bytes(x[at..at + 4].try_into().unwrap()),
                            f32::from_le_bytes(y[at..at + 4].try_into().unwrap())
                        );
                    }
                }
            }
        }
    }
    println!("{n} cases, {bad} wrong, {kinds:?}, {:?}", begin.elapsed());
}
