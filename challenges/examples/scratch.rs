#![allow(warnings, unsafe_code, clippy::all)]
//! x
use challenges::nf4::{baseline::Baseline, *};
use half::{bf16,f16}; use kernels::{Cpu, Vector}; use std::time::Instant;
fn rnd(s:&mut u64)->u64{*s=s.wrapping_add(0x9e3779b97f4a7c15);let mut z=*s;z=(z^(z>>30)).wrapping_mul(0xbf58476d1ce4e5b9);z=(z^(z>>27)).wrapping_mul(0x94d049bb133111eb);z^(z>>31)}
fn main(){
 let mut s=1u64;
 let n=4096*14336usize; let nb=n/64;
 let packed:Vec<u8>=(0..n/2).map(|_|rnd(&mut s) as u8).collect();
 let codes:Vec<u8>=(0..nb).map(|_|rnd(&mut s) as u8).collect();
 let scales:Vec<f32>=(0..nb.div_ceil(256)).map(|_|(rnd(&mut s)%1000) as f32*1e-5).collect();
 let w=Weight{len:n,block_size:64,packed:&packed,table:&reference::nf4::NF4,absmax:Absmax::Double{codes:&codes,table:&reference::nf4::CODE2,scales:&scales,block_size:256,offset:0.03}};
 let t=Instant::now(); let want=reference::nf4::dequantize_bits(&w,Dtype::F16); println!("oracle {:?}",t.elapsed());
 let wantb=reference::nf4::dequantize_bits(&w,Dtype::Bf16);
 let mut out:Vec<u64>=vec![0;n/4+16];
 let off=out.as_ptr().align_offset(64);
 let raw:&mut [u64]=&mut out[off..off+n/4];
 let o:&mut [f16]=unsafe{std::slice::from_raw_parts_mut(raw.as_mut_ptr().cast(),n)};
 for v in Vector::available(){ let cpu=Cpu::new().limited_to(v).unwrap();
  o.fill(f16::from_bits(0x7e77)); Solution.dequantize_fast(&cpu,&w,Output::F16(o));
  let bad=o.iter().zip(&want).filter(|(a,b)|a.to_bits() as u32!=**b).count();
  let ob:&mut [bf16]=unsafe{std::slice::from_raw_parts_mut(o.as_mut_ptr().cast(),n)};
  ob.fill(bf16::from_bits(0x7e77)); Solution.dequantize_fast(&cpu,&w,Output::Bf16(ob));
  let badb=ob.iter().zip(&wantb).filter(|(a,b)|a.to_bits() as u32!=**b).count();
  let mut best=f64::MAX; for _ in 0..10{let t=Instant::now();Solution.dequantize_fast(&cpu,&w,Output::F16(o));best=best.min(t.elapsed().as_secs_f64());}
  println!("{v} bad {bad} {badb} {:.2} ms {:.1} GB/s",best*1e3,2.516*n as f64/best/1e9);
 }
 let cpu=Cpu::new();
 for (name,c) in [("2 threads",Cpu::new()),("1 thread",Cpu::with_threads(1))]{
 let mut b=Baseline::default(); b.dequantize(&c,&w,Output::F16(o)); println!("base bad {}",o.iter().zip(&want).filter(|(a,b)|a.to_bits() as u32!=**b).count()); let mut best=f64::MAX; for _ in 0..5{let t=Instant::now();b.dequantize(&c,&w,Output::F16(o));best=best.min(t.elapsed().as_secs_f64());}
 let mut best2=f64::MAX; let ob:&mut [bf16]=unsafe{std::slice::from_raw_parts_mut(o.as_mut_ptr().cast(),n)}; for _ in 0..5{let t=Instant::now();b.dequantize(&c,&w,Output::Bf16(ob));best2=best2.min(t.elapsed().as_secs_f64());}
 let mut best3=f64::MAX; for _ in 0..3{let t=Instant::now();Solution.dequantize(&c,&w,Output::Bf16(ob));best3=best3.min(t.elapsed().as_secs_f64());}
 println!("baseline {name} f16 {:.2} bf16 {:.2} ms; a5 {:.2}",best*1e3,best2*1e3,best3*1e3);}
 let src:Vec<u8>=packed.iter().chain(codes.iter()).copied().collect();
 let ou:&mut [u8]=unsafe{std::slice::from_raw_parts_mut(o.as_mut_ptr().cast(),2*n)};
 let mut best=f64::MAX; for _ in 0..10{let t=Instant::now();kernels::cpu::stream(&cpu,&src,ou);best=best.min(t.elapsed().as_secs_f64());}
 println!("bound {:.2} ms {:.1} GB/s",best*1e3,2.516*n as f64/best/1e9);
}
