// The three launches that dequantising NF4 amounts to in bitsandbytes, in the shape of that library.
//
//   (1) absmax[b] = code2[codes[b]] * scales[b >> nested_shift]        8-bit codes to an f32 buffer
//   (2) absmax[b] = absmax[b] + offset                                 a whole pass for one addition
//   (3) out[e]    = round(table[code(e)] * absmax[e >> block_shift])   4-bit codes to the output
//
// This is what an attempt is compared with, so it has to be neither slower nor faster than the library: the
// same threads a block, the same bytes a thread, the same one-byte loads and one-element stores.
//
// Threads. (1) and (3): 64 a block, 8 bytes a thread. A warp reads its 256 bytes one byte a lane, side by side,
// and turns them in shared memory so that each lane holds 8 neighbours; the outputs turn back the same way and
// leave one element a lane. (2): 128 a block, 4 scales a thread.
// Bytes. (3) moves 0.5 + 0.0625 + 2 a weight; (1) and (2) move 0.2 a weight more, which the L2 serves.
//
// H100 80GB HBM3, November 2026, 20 chains in a graph, one command (book/src/results/h100-peers.txt and h100.json; with
// inline PTX, whose packed conversion the library uses too):
//                        2048 x 8192 f16   4096 x 14336 bf16   8192 x 28672 bf16
//   bitsandbytes 0.50.2          26.0 us             75.6 us            288.3 us
//   this file                    25.7 us             75.6 us            286.9 us
// (3) is bound by instructions and not by memory: its schedulers issue in 80 % of all cycles, while the DRAM works at
// 54 % (book/src/results/nf4-h100-ncu.csv).

#include "warpbook.cuh"

constexpr u32 THREADS = 64;                    // a block of (1) and (3)
constexpr u32 BYTES = 8;                       // a thread's
constexpr u32 TILE = THREADS * BYTES;          // bytes a block
constexpr u32 WARP_BYTES = 32 * BYTES;

// Where item i of a turned tile lies: one item of padding after every 32, so that a stride of 8 or 16 items
// meets different banks.
__device__ __forceinline__ u32 padded(u32 i) { return i + i / 32; }

__device__ constexpr u32 padded_size(u32 items) { return items + items / 32; }

// The warp's 256 bytes of a tile, read one byte a lane; lane l gets bytes 8 l .. 8 l + 7.
__device__ __forceinline__ void read_tile(const u8* from, u32 valid, u8* tile, u8 bytes[BYTES]) {
    const u32 lane = threadIdx.x % 32, start = threadIdx.x / 32 * WARP_BYTES;
    u8 striped[BYTES];
    for (u32 k = 0; k < BYTES; k++) {
        const u32 i = start + k * 32 + lane;
        striped[k] = i < valid ? from[i] : 0;  // (32,) u8 a warp
    }
    for (u32 k = 0; k < BYTES; k++) tile[padded(start + k * 32 + lane)] = striped[k];
    __syncwarp();                              // without it a lane reads bytes its neighbour has not put yet
    for (u32 k = 0; k < BYTES; k++) bytes[k] = tile[padded(start + lane * BYTES + k)];
}

// The way back: lane l holds items N l .. N l + N - 1 of its warp's part and writes every 32nd.
template <u32 N, typename T>
__device__ __forceinline__ void write_tile(T* to, u32 valid, T* tile, const T (&items)[N]) {
    const u32 lane = threadIdx.x % 32, start = threadIdx.x / 32 * 32 * N;
    for (u32 k = 0; k < N; k++) tile[padded(start + lane * N + k)] = items[k];
    __syncwarp();                              // as in read_tile
    T striped[N];
    for (u32 k = 0; k < N; k++) striped[k] = tile[padded(start + k * 32 + lane)];
    __syncthreads();
    for (u32 k = 0; k < N; k++) {
        const u32 i = start + k * 32 + lane;
        if (i < valid) to[i] = striped[k];     // (32,) T a warp
    }
}

// What of a tile that begins `left` items before the end is there at all.
__device__ __forceinline__ u32 valid_of(u64 left, u32 tile) { return left < tile ? (u32)left : tile; }

__device__ __forceinline__ u64 blocks_of(const Weight& w) {
    return (w.len + (1ull << w.block_shift) - 1) >> w.block_shift;
}

// (1) One f32 a block of the weight. A single-level weight has its scales already: they are copied.
extern "C" __global__ void baseline_scales(const __grid_constant__ Weight w, float* absmax) {
    __shared__ u8 bytes_in[padded_size(TILE)];
    __shared__ float scales_out[padded_size(TILE)];
    const u64 blocks = blocks_of(w);
    for (u64 first = (u64)blockIdx.x * TILE; first < blocks; first += (u64)gridDim.x * TILE) {
        const u64 block = first + threadIdx.x * BYTES;
        float scale[BYTES] = {};
        __syncthreads();                       // without it a tile is overwritten while its stores still read
        if (w.codes == nullptr) {
            for (u32 k = 0; k < BYTES; k++)
                if (block + k < blocks) scale[k] = w.scales[block + k];
        } else {
            u8 bytes[BYTES];
            const float second = block < blocks ? w.scales[block >> w.nested_shift] : 0.0f;
            read_tile(w.codes + first, valid_of(blocks - first, TILE), bytes_in, bytes);
            for (u32 k = 0; k < BYTES; k++) scale[k] = __fmul_rn(w.code2[bytes[k]], second);
        }
        __syncthreads();
        write_tile<BYTES>(absmax + first, valid_of(blocks - first, TILE), scales_out, scale);
    }
}
LAUNCH(baseline_scales, 64, 512, 0, 0, 0);     // 8 scales of 64 elements a thread

// (2) The offset, added in place.
extern "C" __global__ void baseline_offset(const __grid_constant__ Weight w, float* absmax) {
    if (w.codes == nullptr) return;
    const u64 blocks = blocks_of(w);
    for (u64 first = (u64)blockIdx.x * 512; first < blocks; first += (u64)gridDim.x * 512)
        for (u32 k = 0; k < 4; k++) {
            const u64 block = first + k * 128 + threadIdx.x;
            if (block < blocks) absmax[block] = __fadd_rn(absmax[block], w.offset);
        }
}
LAUNCH(baseline_offset, 128, 256, 0, 0, 0);    // 4 scales of 64 elements a thread

// (3) Two elements a byte, sixteen a thread.
extern "C" __global__ void baseline_codes(const __grid_constant__ Weight w, const float* absmax, Out* out) {
    __shared__ u8 bytes_in[padded_size(TILE)];
    __shared__ Out outputs[padded_size(2 * TILE)];
    __shared__ float4 quarters[4];
    const float* table = (const float*)quarters;
    const u64 first = (u64)blockIdx.x * TILE;  // of the block's bytes
    if (2 * first >= w.len) return;            // the whole block: no barrier is missed
    const u32 q = 4 * threadIdx.x;
    if (q < 16) quarters[q / 4] = make_float4(w.table[q], w.table[q + 1], w.table[q + 2], w.table[q + 3]);
    __syncthreads();                           // without it a thread looks up a table that is not there yet
    u8 bytes[BYTES];
    read_tile(w.packed + first, valid_of((w.len + 1) / 2 - first, TILE), bytes_in, bytes);
    Out values[2 * BYTES];
    const u64 e = 2 * (first + threadIdx.x * BYTES);
    const float scale = e < w.len ? absmax[e >> w.block_shift] : 0.0f;
    for (u32 k = 0; k < BYTES; k++) {
        const float high = __fmul_rn(table[bytes[k] >> 4], scale);
        const float low = __fmul_rn(table[bytes[k] & 15], scale);
#if OUTPUT_F32
        values[2 * k] = round_output(high);
        values[2 * k + 1] = round_output(low);
#else
        const u32 pair = round_pair(high, low);
        values[2 * k] = (Out)pair;
        values[2 * k + 1] = (Out)(pair >> 16);
#endif
    }
    __syncthreads();
    write_tile<2 * BYTES>(out + 2 * first, valid_of(w.len - 2 * first, 2 * TILE), outputs, values);
}
LAUNCH(baseline_codes, 64, 16, 0, 0, 0);
