// What a measurement needs of the card itself: contents that were never there before, and a cold cache.
//
// Threads  one 8-byte word a thread (random_words), 16 bytes a thread at a time in a grid-stride loop (read_all).
// Bytes    8 written an element; 16 read an element. 1 GiB takes 0.7 ms on a card of 3 TB/s.

#include "warpbook.cuh"

LAUNCH(random_words, 256, 1, 0, 0, 0);
LAUNCH(read_all, 512, 1, 4, 0, 0);

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
