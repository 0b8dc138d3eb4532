// Products of tiles by wgmma: sm_90a, depths and widths of 64 and 128.
//
//   A warpgroup - 4 warps - has 64 rows against a tile, of which each warp has 16. The instruction reads the tile from
//   shared memory by itself, and so its rows lie as it wants them: 128 bytes of each side by side, 16-byte chunk c of
//   row r at chunk c ^ (r % 8), so that neither 8 rows of one chunk nor 8 chunks of one row meet in a bank. A longer
//   row goes on behind all the others' first 128 bytes. One layout serves both products: the tile's rows against rows
//   (K-major), and its rows as terms (MN-major).
//   Threads write tiles and the tensor cores read them through another proxy; a fence stands between.
//
// Reads: PTX ISA 9.0, "Asynchronous Warpgroup Level Matrix Instructions", "Matrix Descriptor Format", "Strides".

// Tiles of 16 queries that a warp has.
constexpr u32 TALL = 1;

// Warps that a multiprocessor is to have registers for.
constexpr u32 WARPS = DEPTH > 64 || WIDTH > 64 ? 8 : 16;

// Bytes of a tile in shared memory.
__device__ constexpr u32 tile_bytes(u32 rows, u32 length) { return rows * length * 2; }

// Tiles begin at multiples of the 8 rows of 128 bytes after which their pattern repeats.
__device__ __forceinline__ u32 first_tile(const void* memory) { return (shared_address(memory) + 1023) / 1024 * 1024; }

__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void finish_products() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

// The two warpgroups of a block of queries take turns: while one multiplies, the other makes probabilities of its
// scores. 2 % of the forward kernel (4096 tokens, heads of 128, causal, H100); dQ's, with less between its products, is
// slower with it. Reads: PTX ISA 9.0, "barrier": the first arrives, the second waits.
__device__ __forceinline__ void await_turn() {
    if (threadIdx.x >= 128) asm volatile("barrier.sync 1, %0;" ::"n"(2 * QUERIES) : "memory");
}
__device__ __forceinline__ void pass_turn() {
    if (threadIdx.x < 128) asm volatile("barrier.arrive 1, %0;" ::"n"(2 * QUERIES) : "memory");
}

// What was copied may be read by the tensor cores, after the block's barrier.
__device__ __forceinline__ void publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Begins to copy ROWS rows of a head from `row` on, by THREADS threads; rows that are not there are zeros.
template <u32 ROWS, u32 COLUMNS, u32 THREADS>
__device__ __forceinline__ void begin_copy(u32 to, const Matrix& m, u64 row) {
    constexpr u32 CHUNKS = COLUMNS / 8;
#pragma unroll
    for (u32 e = threadIdx.x % THREADS; e < ROWS * CHUNKS; e += THREADS) {
        const u32 r = e / CHUNKS, c = e % CHUNKS;
        const bool is_there = row + r < m.rows;
        const u64 from = m.at + ((is_there ? row + r : 0) * m.row + c * 8) * sizeof(E::Bits);
        copy_16(to + c / 8 * (ROWS * 128) + r * 128 + (c % 8 ^ r % 8) * 16, from, is_there);
    }
}

// A tile from an address on; `blocks` are the bytes from 64 columns to the next 64, of which K-major needs no word.
__device__ __forceinline__ u64 descriptor(u32 at, u32 blocks) {
    return (u64)((at & 0x3ffff) >> 4) | (u64)(blocks >> 4) << 16 | (u64)(1024 >> 4) << 32 | 1ull << 62;
}

#if IS_BF16
#define TYPES "bf16.bf16"
#else
#define TYPES "f16.f16"
#endif

#define OF(j) "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])

// d += a b, or d = a b, 64 x 16 by 16 x 64 or 128: `a` a tile and `b` rows, or `a` registers and `b` rows as terms.
__device__ __forceinline__ void products(float (&d)[8][4], u64 a, u64 b, bool keeps) {
    asm volatile("{.reg .pred p; setp.ne.u32 p, %34, 0; "
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPES " "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "%32, %33, p, 1, 1, 0, 0;}"
                 : OF(0), OF(1), OF(2), OF(3), OF(4), OF(5), OF(6), OF(7)
                 : "l"(a), "l"(b), "r"((u32)keeps));
}
__device__ __forceinline__ void products(float (&d)[16][4], u64 a, u64 b, bool keeps) {
    asm volatile("{.reg .pred p; setp.ne.u32 p, %66, 0; "
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPES " "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "%64, %65, p, 1, 1, 0, 0;}"
                 : OF(0), OF(1), OF(2), OF(3), OF(4), OF(5), OF(6), OF(7), OF(8), OF(9), OF(10), OF(11), OF(12),
                   OF(13), OF(14), OF(15)
                 : "l"(a), "l"(b), "r"((u32)keeps));
}
__device__ __forceinline__ void products(float (&d)[8][4], const u32 (&a)[4], u64 b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPES " "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "{%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
                 : OF(0), OF(1), OF(2), OF(3), OF(4), OF(5), OF(6), OF(7)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void products(float (&d)[16][4], const u32 (&a)[4], u64 b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPES " "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "{%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
                 : OF(0), OF(1), OF(2), OF(3), OF(4), OF(5), OF(6), OF(7), OF(8), OF(9), OF(10), OF(11), OF(12),
                   OF(13), OF(14), OF(15)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
#undef OF
#undef TYPES

// sums[j] = the warpgroup's rows of `left`, times rows of `right`: LENGTH numbers each. The warp's rows begin at `row`,
// and `left` has LEFT_ROWS.
template <u32 TILES, u32 COLUMNS, u32 LENGTH, u32 LEFT_ROWS>
__device__ __forceinline__ void rows_by_rows(float (&sums)[TILES][COLUMNS / 8][4], u32 left, u32 row, u32 right) {
    const u32 own = left + row / 64 * (64 * 128);
#pragma unroll
    for (u32 k = 0; k < LENGTH; k += 16) {
        const u32 column = k % 64 * 2;
        products(sums[0], descriptor(own + k / 64 * (LEFT_ROWS * 128) + column, 16),
                 descriptor(right + k / 64 * (COLUMNS * 128) + column, 16), k > 0);
    }
}

// sums += weights, in registers, times the ROWS rows of a tile: LENGTH numbers each.
template <u32 TILES, u32 ROWS, u32 LENGTH>
__device__ __forceinline__ void weighted_rows(float (&sums)[TILES][LENGTH / 8][4],
                                              const u32 (&weights)[TILES][ROWS / 16][4], u32 tile) {
#pragma unroll
    for (u32 k = 0; k < ROWS / 16; ++k) products(sums[0], weights[0][k], descriptor(tile + k * (16 * 128), ROWS * 128));
}
