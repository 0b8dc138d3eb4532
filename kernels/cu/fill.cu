// What a measurement needs of the card itself: contents that were never there before, and a cold cache.
//
// Threads  one 8-byte word a thread (random_words), 16 bytes a thread at a time in a grid-stride loop (read_all).
// Bytes    8 written an element; 16 read an element. 1 GiB takes 0.36 ms on a card of 3 TB/s.

#include "warpbook.cuh"

LAUNCH(random_words, 256, 1, 0, 0, 0);
LAUNCH(read_all, 512, 1, 4, 0, 0);
LAUNCH(write_late, 256, 1, 1, 0, 0);

// The finaliser of SplitMix64: every output word depends on every bit of its number.
// Source: Steele, Lea, Flood, Fast Splittable Pseudorandom Number Generators (2014), figure 16.
__device__ __forceinline__ u64 mix(u64 z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

// out[i] = mix(seed + (i + 1) * golden): any word can be computed alone, on the host too.
extern "C" __global__ void random_words(u64* out, u64 words, u64 seed) {
    u64 i = (u64)blockIdx.x * 256 + threadIdx.x;
    if (i < words) out[i] = mix(seed + (i + 1) * 0x9e3779b97f4a7c15ull);     // (words,) u64
}

// Reads everything and writes nothing that matters: what lay dirty in the L2 cache is driven out by reads, so no
// write-back is left over for the kernel that is timed next.
extern "C" __global__ void read_all(const uint4* from, u64 count, u32* sink) {
    u32 sum = 0;
    for (u64 i = (u64)blockIdx.x * 512 + threadIdx.x; i < count; i += (u64)gridDim.x * 512) {
        uint4 part = from[i];                                               // (count,) 16 bytes
        sum ^= part.x ^ part.y ^ part.z ^ part.w;
    }
    if (sum == 0x5eed5eed) *sink = sum;        // never, and the compiler cannot know: the reads stay
}

// Lets the kernel after it begin at once, takes its time, and only then writes: `to` gets the words of `from`,
// `filled` the pattern. Who launches with overlap and does not wait reads what was there before, or has what it
// wrote overwritten.
extern "C" __global__ void write_late(const u32* from, u32* to, u64 words, u32* filled, u64 fills, u32 pattern,
                                      u64 nanoseconds) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");         // PTX ISA, "griddepcontrol"
    u64 begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));                // PTX ISA, "%globaltimer": nanoseconds
    do {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while (now - begin < nanoseconds);
#endif
    const u64 first = (u64)blockIdx.x * 256 + threadIdx.x, step = (u64)gridDim.x * 256;
    for (u64 i = first; i < words; i += step) to[i] = from[i];              // (words,) u32
    for (u64 i = first; i < fills; i += step) filled[i] = pattern;          // (fills,) u32
}
