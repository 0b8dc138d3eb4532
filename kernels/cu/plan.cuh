// What the kernels of a plan share: number types in memory, vectors of them, sums over groups of threads, Philox, and
// the note that a lane leaves which read a place that is not there.
//
// No header of a CUDA toolkit is needed. Nothing is contracted: see compile.rs.

#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// A number type in memory: the value that it stands for, f32 or int, and the way back, to nearest even.
struct U8 {
    typedef u8 Bits;
    static __device__ __forceinline__ int read(u8 bits) { return bits; }
    static __device__ __forceinline__ u8 write(int value) { return (u8)value; }
};
struct I32 {
    typedef int Bits;
    static __device__ __forceinline__ int read(int bits) { return bits; }
    static __device__ __forceinline__ int write(int value) { return value; }
};
struct F32 {
    typedef float Bits;
    static __device__ __forceinline__ float read(float bits) { return bits; }
    static __device__ __forceinline__ float write(float value) { return value; }
};
struct F16 {
    typedef u16 Bits;
    static __device__ __forceinline__ float read(u16 bits) {
        float value;                           // PTX ISA, "cvt"; the compiler's own function is not there for sm_100
        asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
        return value;
    }
    static __device__ __forceinline__ u16 write(float value) {
        u16 bits;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
        return bits;
    }
};
struct Bf16 {
    typedef u16 Bits;
    static __device__ __forceinline__ float read(u16 bits) { return __uint_as_float((u32)bits << 16); }
    static __device__ __forceinline__ u16 write(float value) {
#if __CUDA_ARCH__ >= 800
        u16 bits;                              // PTX ISA, "cvt"
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
        return bits;
#else
        if (value != value) return 0x7fff;
        u32 bits = __float_as_uint(value);     // add just under half an ulp; the last kept bit decides a tie
        return (u16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
#endif
    }
};

// N elements side by side, moved in as few accesses of up to 16 bytes as there can be.
template <class E, int N> struct alignas(sizeof(typename E::Bits) * N <= 16 ? sizeof(typename E::Bits) * N : 16) Pack {
    typename E::Bits bits[N];
};
template <class E, int N> __device__ __forceinline__ Pack<E, N> load(u64 base, u64 at) {
    return *(const Pack<E, N>*)((const typename E::Bits*)base + at);
}
template <class E, int N> __device__ __forceinline__ void store(u64 base, u64 at, const Pack<E, N>& pack) {
    *(Pack<E, N>*)((typename E::Bits*)base + at) = pack;
}
// The same N elements in pieces of WIDTH, where memory is aligned for no more.
template <class E, int N, int WIDTH> __device__ __forceinline__ Pack<E, N> load_in_pieces(u64 base, u64 at) {
    Pack<E, N> pack;
#pragma unroll
    for (int i = 0; i < N; i += WIDTH) {
        const auto piece = load<E, WIDTH>(base, at + i);
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) pack.bits[i + j] = piece.bits[j];
    }
    return pack;
}
template <class E, int N, int WIDTH>
__device__ __forceinline__ void store_in_pieces(u64 base, u64 at, const Pack<E, N>& pack) {
#pragma unroll
    for (int i = 0; i < N; i += WIDTH) {
        Pack<E, WIDTH> piece;
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) piece.bits[j] = pack.bits[i + j];
        store<E, WIDTH>(base, at + i, piece);
    }
}
template <class E> __device__ __forceinline__ auto fetch(u64 base, u64 at) {
    return E::read(((const typename E::Bits*)base)[at]);
}

// Which lane of which step did what it must not. The first step to fail keeps its note, and of its lanes the first.
struct Fault {
    u32 lock;
    u32 step_id;                                  // 0: nothing failed; else the step's number and one
    u32 op;
    int got;
    u64 lane;
};

__device__ __noinline__ void fail(u64 fault, u32 step_id, u32 op, u64 lane, int got) {
    volatile Fault* note = (volatile Fault*)fault;
    while (atomicCAS((u32*)&note->lock, 0u, 1u) != 0u) {}
    __threadfence();
    const bool is_earlier = lane < note->lane || (lane == note->lane && op < note->op);
    if (note->step_id == 0u || (note->step_id == step_id && is_earlier)) {
        note->op = op;
        note->got = got;
        note->lane = lane;
        note->step_id = step_id;
    }
    __threadfence();
    atomicExch((u32*)&note->lock, 0u);
}

// The larger, or smaller, of two; NaN if one is.
__device__ __forceinline__ float larger(float a, float b) { return a != a || b != b ? __fadd_rn(a, b) : a < b ? b : a; }
__device__ __forceinline__ float smaller(float a, float b) {
    return a != a || b != b ? __fadd_rn(a, b) : b < a ? b : a;
}
__device__ __forceinline__ int divide_down(int a, int b) {
    if (b == -1) return (int)(0u - (u32)a);    // the quotient of the least number does not fit: it wraps
    int quotient = a / b;
    return a % b != 0 && ((a < 0) != (b < 0)) ? quotient - 1 : quotient;
}

// Whole numbers wrap around.
__device__ __forceinline__ int wrap_add(int a, int b) { return (int)((u32)a + (u32)b); }
__device__ __forceinline__ int wrap_sub(int a, int b) { return (int)((u32)a - (u32)b); }
__device__ __forceinline__ int wrap_mul(int a, int b) { return (int)((u32)a * (u32)b); }

struct Sum {
    static __device__ __forceinline__ float of(float a, float b) { return __fadd_rn(a, b); }
    static __device__ __forceinline__ int of(int a, int b) { return wrap_add(a, b); }
};
struct Max {
    static __device__ __forceinline__ float of(float a, float b) { return larger(a, b); }
};

// What a group of threads that follow each other has together, known to each of them afterwards. Groups of up to a warp
// shuffle; larger ones are whole warps and meet in shared memory, 32 words of it. All threads of the block take part.
template <class Join, int GROUP, class T> __device__ __forceinline__ T together(T value, void* shared) {
    constexpr int WARP = GROUP < 32 ? GROUP : 32;
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2) {
        value = Join::of(value, __shfl_xor_sync(0xffffffffu, value, step));
    }
    if constexpr (GROUP > 32) {
        T* parts = (T*)shared;
        constexpr u32 WARPS = GROUP / 32;
        u32 warp = threadIdx.x / 32, first = warp / WARPS * WARPS;
        __syncthreads();                       // what was there before has been read
        if (threadIdx.x % 32 == 0) parts[warp] = value;
        __syncthreads();
        value = parts[first];
        for (u32 other = 1; other < WARPS; ++other) value = Join::of(value, parts[first + other]);
    }
    return value;
}

// The first word of Philox 4x32-10 at the counter (index, stream, 0, 0). Salmon et al., "Parallel random numbers: as
// easy as 1, 2, 3" (2011).
__device__ __forceinline__ u32 philox(u32 index, u32 stream, u32 key0, u32 key1) {
    u32 c0 = index, c1 = stream, c2 = 0, c3 = 0;
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        u64 first = (u64)c0 * 0xD2511F53u, third = (u64)c2 * 0xCD9E8D57u;
        c0 = (u32)(third >> 32) ^ c1 ^ key0;
        c1 = (u32)third;
        c2 = (u32)(first >> 32) ^ c3 ^ key1;
        c3 = (u32)first;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return c0;
}
