// Products of tiles by mma.sync: sm_80 and later, depths and widths that are multiples of 16.
//
//   A warp has 32 queries, or 16 keys, against a tile. With 16 queries the shared memory, not the tensor cores, would
//   be what limits. Rows in shared memory are 16 bytes longer than they need to be, so that the 8 rows that ldmatrix
//   reads lie in different banks, for every depth.
//
// Reads: PTX ISA 9.0, "mma.sync.aligned.m16n8k16", "ldmatrix".

// Tiles of 16 queries that a warp has.
constexpr u32 TALL = 2;

// Warps that a multiprocessor is to have registers for.
constexpr u32 WARPS = 4;

// Bytes of a tile in shared memory.
__device__ constexpr u32 tile_bytes(u32 rows, u32 length) { return rows * (length + 8) * 2; }

__device__ __forceinline__ u32 first_tile(const void* memory) { return shared_address(memory); }

// Nothing goes on by itself here.
__device__ __forceinline__ void begin_products() {}
__device__ __forceinline__ void finish_products() {}
__device__ __forceinline__ void publish() {}
__device__ __forceinline__ void await_turn() {}
__device__ __forceinline__ void pass_turn() {}

__device__ __forceinline__ void load_matrices(u32 (&to)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at));
}
__device__ __forceinline__ void load_transposed(u32 (&to)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at));
}

// sum += a b, 16 x 16 by 16 x 8.
__device__ __forceinline__ void multiply(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#if IS_BF16
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#endif
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Begins to copy ROWS rows of a head from `row` on, by THREADS threads; rows that are not there are zeros.
template <u32 ROWS, u32 COLUMNS, u32 THREADS>
__device__ __forceinline__ void begin_copy(u32 to, const Matrix& m, u64 row) {
    constexpr u32 CHUNKS = COLUMNS / 8;
#pragma unroll
    for (u32 e = threadIdx.x % THREADS; e < ROWS * CHUNKS; e += THREADS) {
        const u32 r = e / CHUNKS, c = e % CHUNKS;
        const bool is_there = row + r < m.rows;
        const u64 from = m.at + ((is_there ? row + r : 0) * m.row + c * 8) * sizeof(E::Bits);
        copy_16(to + (r * (COLUMNS + 8) + c * 8) * (u32)sizeof(E::Bits), from, is_there);
    }
}

// Where this lane reads a left factor of 16 rows and 16 columns, and right factors of 16 columns that lie as rows, or
// as columns, in shared memory.
template <u32 ROW> __device__ __forceinline__ u32 left_at(u32 base, u32 row, u32 column) {
    const u32 lane = threadIdx.x % 32;
    return base + ((row + lane % 16) * ROW + column + lane / 16 * 8) * 2;
}
template <u32 ROW> __device__ __forceinline__ u32 right_at(u32 base, u32 row, u32 column) {
    const u32 lane = threadIdx.x % 32;
    return base + ((row + lane % 8 + lane / 16 * 8) * ROW + column + lane / 8 % 2 * 8) * 2;
}
template <u32 ROW> __device__ __forceinline__ u32 transposed_at(u32 base, u32 row, u32 column) {
    const u32 lane = threadIdx.x % 32;
    return base + ((row + lane % 8 + lane / 8 % 2 * 8) * ROW + column + lane / 16 * 8) * 2;
}

// sums[i][j] = rows of `left` from `row` on, times rows of `right`: LENGTH numbers each. `left` has LEFT_ROWS of them.
template <u32 TILES, u32 COLUMNS, u32 LENGTH, u32 LEFT_ROWS>
__device__ __forceinline__ void rows_by_rows(float (&sums)[TILES][COLUMNS / 8][4], u32 left, u32 row, u32 right) {
    constexpr u32 ROW = LENGTH + 8;
#pragma unroll
    for (u32 e = 0; e < TILES * COLUMNS / 2; ++e) sums[e / (COLUMNS / 2)][e / 4 % (COLUMNS / 8)][e % 4] = 0.0f;
#pragma unroll
    for (u32 k = 0; k < LENGTH; k += 16) {
        u32 a[TILES][4];
#pragma unroll
        for (u32 i = 0; i < TILES; ++i) load_matrices(a[i], left_at<ROW>(left, row + 16 * i, k));
#pragma unroll
        for (u32 j = 0; j < COLUMNS / 16; ++j) {
            u32 b[4];
            load_matrices(b, right_at<ROW>(right, 16 * j, k));
#pragma unroll
            for (u32 i = 0; i < TILES; ++i) {
                multiply(sums[i][2 * j], a[i], b[0], b[1]);
                multiply(sums[i][2 * j + 1], a[i], b[2], b[3]);
            }
        }
    }
}

// sums[i] += weights[i], in registers, times the ROWS rows of a tile: LENGTH numbers each.
template <u32 TILES, u32 ROWS, u32 LENGTH>
__device__ __forceinline__ void weighted_rows(float (&sums)[TILES][LENGTH / 8][4],
                                              const u32 (&weights)[TILES][ROWS / 16][4], u32 tile) {
#pragma unroll
    for (u32 k = 0; k < ROWS / 16; ++k) {
#pragma unroll
        for (u32 j = 0; j < LENGTH / 16; ++j) {
            u32 b[4];
            load_transposed(b, transposed_at<LENGTH + 8>(tile, 16 * k, 16 * j));
#pragma unroll
            for (u32 i = 0; i < TILES; ++i) {
                multiply(sums[i][2 * j], weights[i][k], b[0], b[1]);
                multiply(sums[i][2 * j + 1], weights[i][k], b[2], b[3]);
            }
        }
    }
}
