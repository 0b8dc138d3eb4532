// What every kernel text of the workbook may use: number types, the weight, the rounding, the launch.
//
// The host puts this text in front of a kernel's compiler as the header "warpbook.cuh" and defines
//   OUTPUT_F16, OUTPUT_BF16 or OUTPUT_F32   the output's type: one of the three is 1, the others 0
//   INLINE_PTX                              0 where the plain C twin of inline PTX is asked for, else 1
// The inline PTX of this text begins with a comment that names it, so that it is not taken for a kernel's own.
// No header of a CUDA toolkit is needed: the compiler and its built-in functions are enough.

#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#if OUTPUT_F32
typedef u32 Out;                               // an output's bit pattern
#else
typedef u16 Out;
#endif

// ANCHOR: cuda-weight
// A weight as a kernel gets it, by value: 120 bytes in the constant bank of the kernel's parameters.
// Pointers are to device memory. Element e has the code packed[e / 2], high nibble for even e; its block is
// e >> block_shift.
struct Weight {
    const u8* packed;                          // (ceil(len / 2),) two codes a byte; any alignment
    const u8* codes;                           // (blocks,) 8-bit scale codes; null when the scales are single
    const float* scales;                       // (ceil(blocks / 2^nested_shift),), or (blocks,) when single
    const float* code2;                        // (256,) what an 8-bit scale code stands for; null when single
    u64 len;                                   // elements
    float offset;                              // added to every double-quantised scale
    u32 block_shift;                           // log2 of the elements a block: 5 to 12
    u32 nested_shift;                          // log2 of the scale codes a second-level block
    float table[16];                           // what a 4-bit code stands for
};
// ANCHOR_END: cuda-weight

// ANCHOR: cuda-launch
// How a kernel wants to be launched. The host reads it out of the compiled module.
struct Launch {
    u32 threads;                               // a block
    u32 per_thread;                            // elements a thread takes at a time
    u32 blocks_per_sm;                         // 0: as many blocks as the weight needs; else a fixed grid
    u32 shared_bytes;                          // dynamic shared memory a block
    u32 overlap;                               // 1: programmatic dependent launch (sm_90); see the manual
};

// LAUNCH(dequantize, 256, 8, 0, 0, 0): the launch of the kernel of that name.
#define LAUNCH(kernel, threads, per_thread, blocks_per_sm, shared_bytes, overlap) \
    extern "C" __constant__ Launch kernel##_launch = {threads, per_thread, blocks_per_sm, shared_bytes, overlap}
// ANCHOR_END: cuda-launch

// f32 to the output's type, to nearest even, as a bit pattern. Overflow is infinity; a NaN is 0x7fff in the 16-bit
// types, on every path.
__device__ __forceinline__ Out round_output(float w) {
#if OUTPUT_F32
    return __float_as_uint(w);
#elif OUTPUT_F16
    return (u16)__nvvm_f2h_rn(w);              // one cvt.rn.f16.f32; subnormals are kept
#elif INLINE_PTX && __CUDA_ARCH__ >= 800
    u16 bits;                                  // PTX ISA, "cvt": the compiler has no built-in function for it
    asm("// warpbook.cuh\n\tcvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(w));
    return bits;
#else
    if (w != w) return 0x7fff;                 // what cvt gives; the sum below would carry 0x7fffffff into -0
    u32 bits = __float_as_uint(w);             // bf16 is the upper half: add just under half an ulp, and the
    return (u16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);  // last kept bit decides a tie
#endif
}

// Two outputs beside each other in a word, the first in the low half. Only for the 16-bit types.
__device__ __forceinline__ u32 round_pair(float first, float second) {
#if INLINE_PTX && __CUDA_ARCH__ >= 800 && !OUTPUT_F32
    u32 pair;                                  // PTX ISA, "cvt": one instruction for both, the high half first
#if OUTPUT_F16
    asm("// warpbook.cuh\n\tcvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
#else
    asm("// warpbook.cuh\n\tcvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
#endif
    return pair;
#else
    return (u32)(u16)round_output(first) | (u32)(u16)round_output(second) << 16;
#endif
}

// The f32 that a 16-bit pattern stands for; exact.
__device__ __forceinline__ float from_f16(u16 bits) {
    return __nvvm_h2f(bits);
}
__device__ __forceinline__ float from_bf16(u16 bits) {
    return __uint_as_float((u32)bits << 16);
}

// A step that is not written yet: says so to the host and ends the thread.
extern "C" __device__ u32 warpbook_hole;
__device__ u32 warpbook_hole = 0;
#define TODO(task) \
    do { warpbook_hole = 1; asm volatile("exit;"); } while (0)
