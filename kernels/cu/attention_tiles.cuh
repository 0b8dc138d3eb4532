// The same attention on tensor cores: f16 or bf16, depths and widths of up to 128.
//
//   Threads. A block has 128 queries against tiles of keys, or 64 or 128 keys against tiles of queries. Scores and
//     probabilities never leave the registers: what a product gives as a result is the left factor of the next one.
//   Bytes. Tiles come by cp.async, 16 bytes a time, one tile ahead of what is computed. So does what programs know of a
//     tile's keys, or queries: in registers until the tile before it is done, then in shared memory. What they know of
//     a block's own stays in registers.
//   Sums. f32, each in one order: dQ has a kernel of its own, which computes the scores again, and no atomic addition.
//
// Products of tiles are those of attention_mma.cuh or attention_wgmma.cuh, one of which stands before: begin_copy,
// rows_by_rows and weighted_rows, and how many keys and threads they are best for. In both, what a lane has of a tile's
// sums are columns 8 j + 2 (lane % 4) + {0, 1} of rows lane / 4 and lane / 4 + 8 of 16.
//
// Reads: Dao, "FlashAttention-2" (2023); Shah et al., "FlashAttention-3" (2024).
//
// Defined before, beside what attention.cuh needs: DEPTH and WIDTH, multiples of 16; QUERIES of a block and KEYS of a
// tile that it meets, OWN_KEYS of a block of dK and dV and the SPLIT of its tiles, all of them as attention.rs cuts
// them; IS_SCALED: scores are multiplied before they are used, as a program or a scale below zero asks; attention.cuh
// itself, of which the map, delta and the helpers are used.

constexpr u32 OF_QUERIES = 64; // queries of a tile that a block of keys meets

// Threads of a block that owns queries, and of one that owns keys.
constexpr u32 OF_ROWS = 2 * QUERIES / TALL, OF_KEYS = 2 * OWN_KEYS;

// Weights rounded, in pairs, as a left factor has them.
template <u32 TILES, u32 COLUMNS>
__device__ __forceinline__ void round_pairs(u32 (&to)[TILES][COLUMNS / 16][4],
                                            const float (&weights)[TILES][COLUMNS / 8][4]) {
#pragma unroll
    for (u32 i = 0; i < TILES; ++i) {
#pragma unroll
        for (u32 k = 0; k < COLUMNS / 16; ++k) {
            const float(&low)[4] = weights[i][2 * k], (&high)[4] = weights[i][2 * k + 1];
            to[i][k][0] = pair_of(low[0], low[1]);
            to[i][k][1] = pair_of(low[2], low[3]);
            to[i][k][2] = pair_of(high[0], high[1]);
            to[i][k][3] = pair_of(high[2], high[3]);
        }
    }
}

// What a mask leaves of so many rows and columns, in whole tiles of the map.
template <u32 ROWS, u32 COLUMNS>
__device__ __forceinline__ u8 seen_of(const PARAMS& p, u32 batch, u32 head, u32 row, u32 column) {
#if HAS_MAP
    bool any = false, every = true;
#pragma unroll
    for (u32 r = 0; r < ROWS; r += TILE) {
#pragma unroll
        for (u32 c = 0; c < COLUMNS; c += TILE) {
            if (row + r >= (u32)p.queries || column + c >= (u32)p.keys) continue;
            const u8 cell = seen(p, batch, head, row + r, column + c);
            any |= cell != EMPTY;
            every &= cell == FULL;
        }
    }
    return !any ? EMPTY : every ? FULL : PARTIAL;
#else
    return seen(p, batch, head, row, column);
#endif
}

// The tiles in which a mask leaves something, in order, in shared memory: number * 4 + what it leaves. Written by the
// first warp; the block waits for it. The map is read once, before the products, since a read of it takes as long as a
// tile's products, and for AHEAD tiles a lane at a time: they do not wait for each other.
template <class Seen> __device__ __forceinline__ void list_tiles(u32* list, u32* count, u32 tiles, const Seen& seen) {
    if (threadIdx.x < 32) {
        constexpr u32 AHEAD = 4;
        u32 found = 0;
        for (u32 first = threadIdx.x; first < tiles + threadIdx.x; first += 32 * AHEAD) {
            u8 states[AHEAD];
#pragma unroll
            for (u32 i = 0; i < AHEAD; ++i) states[i] = first + 32 * i < tiles ? seen(first + 32 * i) : EMPTY;
#pragma unroll
            for (u32 i = 0; i < AHEAD; ++i) {
                const u32 lanes = __ballot_sync(0xffffffffu, states[i] != EMPTY);
                const u32 at = found + __popc(lanes & ((1u << threadIdx.x) - 1));
                if (states[i] != EMPTY) list[at] = (first + 32 * i) * 4 + states[i];
                found += __popc(lanes);
            }
        }
        if (threadIdx.x == 0) *count = found;
    }
    __syncthreads();
}

// The score of a lane from q . k; in what units, see FACTOR.
__device__ __forceinline__ float score_of(const PARAMS& p, float product, float scale, u8 tile, const OfQuery& of_query,
                                          const OfKey& of_key, u32 batch, u32 head, u32 query, u32 key) {
#if IS_SCALED
    return scored(p, __fmul_rn(product, scale), tile, of_query, of_key, batch, head, query, key);
#else
    if (query >= (u32)p.queries || key >= (u32)p.keys) return NONE;
#if HAS_MASK
    const float s = __fmul_rn(product, scale);
    if (tile == PARTIAL && !mask(p, s, of_query, of_key, batch, head, query, key)) return NONE;
#endif
    return product;
#endif
}

// Writes rows of sums, 16 a tile; `factors` are those of a lane's two rows of each.
template <u32 TILES, u32 COLUMNS>
__device__ __forceinline__ void write_rows(const float (&sums)[TILES][COLUMNS / 8][4], const float (&factors)[TILES][2],
                                           const Matrix& to, u64 row) {
    const u32 lane = threadIdx.x % 32;
#pragma unroll
    for (u32 i = 0; i < TILES; ++i) {
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            const u64 r = row + 16 * i + 8 * half + lane / 4;
            if (r >= to.rows) continue;
            const u64 at = to.at + (r * to.row + lane % 4 * 2) * sizeof(E::Bits);
#pragma unroll
            for (u32 j = 0; j < COLUMNS / 8; ++j) {
                const float a = __fmul_rn(sums[i][j][2 * half], factors[i][half]);
                const float b = __fmul_rn(sums[i][j][2 * half + 1], factors[i][half]);
                *(u32*)(at + j * 16) = pair_of(a, b);
            }
        }
    }
}

#if IS_SCALED
#define FACTOR(scale) LOG2E
#else
#define FACTOR(scale) __fmul_rn(scale, LOG2E)
#endif

#if FORWARD
extern "C" __global__ void __launch_bounds__(OF_ROWS, WARPS * 32 / OF_ROWS)
    NAME(attention_tiles)(const __grid_constant__ PARAMS p) {
    extern __shared__ __align__(16) u8 memory[];
    constexpr u32 K_BYTES = tile_bytes(KEYS, DEPTH), STAGE = K_BYTES + tile_bytes(KEYS, WIDTH);
    const u32 of_q = first_tile(memory), stages = of_q + tile_bytes(QUERIES, DEPTH);
    const u32 lane = threadIdx.x % 32, own_row = threadIdx.x / 32 * (16 * TALL);
    const u32 heads = (u32)(p.batches * p.heads), rows = ((u32)p.queries + QUERIES - 1) / QUERIES;
    const u32 row = (rows - 1 - blockIdx.x / heads) * QUERIES, head = blockIdx.x % heads % (u32)p.heads;
    const u32 batch = blockIdx.x % heads / (u32)p.heads, group = head / ((u32)p.heads / (u32)p.groups);
    const Matrix q = MATRIX(q, batch, head, p.queries, p.depth), k = MATRIX(k, batch, group, p.keys, p.depth),
                 v = MATRIX(v, batch, group, p.keys, p.width);
    const float scale = __uint_as_float((u32)p.scale), factor = FACTOR(scale);
    OfKey(*of_keys)[KEYS] = (OfKey(*)[KEYS])(memory + (stages - shared_address(memory)) + 2 * STAGE);
    u32* list = (u32*)(of_keys + 2);
    __shared__ u32 count;
    const u32 t = threadIdx.x;
    const auto load = [&](u32 stage, u32 entry) {
        const u32 key = entry / 4 * KEYS;
        begin_copy<KEYS, DEPTH, OF_ROWS>(stages + stage * STAGE, k, key);
        begin_copy<KEYS, WIDTH, OF_ROWS>(stages + stage * STAGE + K_BYTES, v, key);
    };
    const auto known_of = [&](u32 entry) -> OfKey {
        if (t >= KEYS || !asks(entry % 4)) return {};
        return of_key(p, batch, head, entry / 4 * KEYS + t);
    };
    float output[TALL][WIDTH / 8][4] = {}, largest[TALL][2], total[TALL][2] = {};
    for (u32 i = 0; i < 2 * TALL; ++i) largest[i / 2][i % 2] = NONE;
    begin_copy<QUERIES, DEPTH, OF_ROWS>(of_q, q, row);
    list_tiles(list, &count, (u32)((p.keys + KEYS - 1) / KEYS),
               [&](u32 n) { return seen_of<QUERIES, KEYS>(p, batch, head, row, n * KEYS); });
    if (count > 0) {
        load(0, list[0]);
        if (t < KEYS) of_keys[0][t] = known_of(list[0]);
    }
    commit();
    OfQuery of_queries[TALL][2] = {};
    for (u32 i = 0; i < 2 * TALL && count > 0; ++i) {
        of_queries[i / 2][i % 2] = of_query(p, batch, head, row + own_row + 8 * i + lane / 4);
    }
    for (u32 n = 0; n < count; ++n) {
        const u32 stage = n % 2;
        wait<0>();
        publish();
        __syncthreads(); // the tile is there, and nobody reads the one before it
        OfKey next = {}; // on its way while this tile is computed
        if (n + 1 < count) {
            load(stage ^ 1, list[n + 1]);
            next = known_of(list[n + 1]);
        }
        commit();
        const u8 tile = list[n] % 4;
        const u32 key = list[n] / 4 * KEYS;
        float s[TALL][KEYS / 8][4];
        await_turn();
        begin_products();
        rows_by_rows<TALL, KEYS, DEPTH, QUERIES>(s, of_q, own_row, stages + stage * STAGE);
        finish_products();
        pass_turn();
        if (IS_SCALED || tile != FULL || key + KEYS > p.keys) {
#pragma unroll
            for (u32 i = 0; i < TALL; ++i) {
#pragma unroll
                for (u32 j = 0; j < KEYS / 8; ++j) {
#pragma unroll
                    for (u32 e = 0; e < 4; ++e) {
                        const u32 query = row + own_row + 16 * i + e / 2 * 8 + lane / 4;
                        const u32 column = 8 * j + lane % 4 * 2 + e % 2;
                        s[i][j][e] = score_of(p, s[i][j][e], scale, tile, of_queries[i][e / 2], of_keys[stage][column],
                                              batch, head, query, key + column);
                    }
                }
            }
        }
#pragma unroll
        for (u32 i = 0; i < TALL; ++i) {
#pragma unroll
            for (u32 half = 0; half < 2; ++half) {
                float most = largest[i][half];
#pragma unroll
                for (u32 j = 0; j < KEYS / 8; ++j) most = fmaxf(most, fmaxf(s[i][j][2 * half], s[i][j][2 * half + 1]));
                most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
                most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
                const float base = most == NONE ? 0.0f : __fmul_rn(most, factor);
                const float shrink = power(__fmaf_rn(largest[i][half], factor, -base));
                largest[i][half] = most;
                float sum = 0.0f;
#pragma unroll
                for (u32 j = 0; j < KEYS / 8; ++j) {
#pragma unroll
                    for (u32 e = 2 * half; e < 2 * half + 2; ++e) {
                        s[i][j][e] = power(__fmaf_rn(s[i][j][e], factor, -base));
                        sum = __fadd_rn(sum, s[i][j][e]);
                    }
                }
                total[i][half] = __fmaf_rn(total[i][half], shrink, sum);
#pragma unroll
                for (u32 j = 0; j < WIDTH / 8; ++j) {
                    output[i][j][2 * half] = __fmul_rn(output[i][j][2 * half], shrink);
                    output[i][j][2 * half + 1] = __fmul_rn(output[i][j][2 * half + 1], shrink);
                }
            }
        }
        u32 weights[TALL][KEYS / 16][4];
        round_pairs<TALL, KEYS>(weights, s);
        begin_products();
        weighted_rows<TALL, KEYS, WIDTH>(output, weights, stages + stage * STAGE + K_BYTES);
        finish_products();
        if (t < KEYS) of_keys[stage ^ 1][t] = next;
    }
    wait<0>();
    float factors[TALL][2];
    for (u32 i = 0; i < TALL; ++i) {
        for (u32 half = 0; half < 2; ++half) {
            float sum = total[i][half];
            sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, 1));
            sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, 2));
            factors[i][half] = sum == 0.0f ? 0.0f : __fdiv_rn(1.0f, sum);
#if HAS_LSE
            const u64 query = row + own_row + 16 * i + 8 * half + lane / 4;
            if (lane % 4 == 0 && query < p.queries) {
                const float of_largest = IS_SCALED ? largest[i][half] : __fmul_rn(largest[i][half], scale);
                const u64 at = batch * p.lse_s0 + head * p.lse_s1 + query * p.lse_s2;
                ((float*)p.lse)[at] = sum == 0.0f ? NONE : __fadd_rn(of_largest, logf(sum));
            }
#endif
        }
    }
    write_rows<TALL, WIDTH>(output, factors, MATRIX(o, batch, head, p.queries, p.width), row + own_row);
}
#else

// From scores to probabilities, and from the gradients of those to the gradients of the scores, of one lane.
__device__ __forceinline__ void differentiate(const PARAMS& p, float& s, float& ds, float scale, float factor,
                                              float lse, float delta, u8 tile, bool is_plain, const OfQuery& of_query,
                                              const OfKey& of_key, u32 batch, u32 head, u32 query, u32 key) {
    const float product = s;
    if (!is_plain) s = score_of(p, s, scale, tile, of_query, of_key, batch, head, query, key);
    const bool is_seen = s != NONE;
    s = power(__fmaf_rn(s, factor, -lse));
    ds = __fmul_rn(s, __fadd_rn(ds, -delta));
#if HAS_SLOPE
    ds = is_seen ? slope(p, __fmul_rn(product, scale), ds, of_query, of_key, batch, head, query, key) : 0.0f;
#endif
}

__device__ __forceinline__ float lse_of(const PARAMS& p, u32 batch, u32 head, u32 query) {
    return query < (u32)p.queries ? ((const float*)p.lse)[batch * p.lse_s0 + head * p.lse_s1 + query * p.lse_s2] : 0.0f;
}
// L in the units of the exponent; a query that sees nothing has only scores of -inf.
__device__ __forceinline__ float exponent_of(float lse) { return lse == NONE ? 0.0f : __fmul_rn(lse, LOG2E); }
__device__ __forceinline__ float delta_of(const PARAMS& p, u32 batch, u32 head, u32 query) {
    return query < (u32)p.queries ? ((const float*)p.delta)[(batch * p.heads + head) * p.queries + query] : 0.0f;
}

#if HAS_DQ
extern "C" __global__ void __launch_bounds__(OF_ROWS, WARPS * 32 / OF_ROWS)
    NAME(attention_tiles_dq)(const __grid_constant__ PARAMS p) {
    extern __shared__ __align__(16) u8 memory[];
    constexpr u32 K_BYTES = tile_bytes(KEYS, DEPTH), STAGE = K_BYTES + tile_bytes(KEYS, WIDTH);
    const u32 of_q = first_tile(memory), of_g = of_q + tile_bytes(QUERIES, DEPTH);
    const u32 stages = of_g + tile_bytes(QUERIES, WIDTH);
    const u32 lane = threadIdx.x % 32, own_row = threadIdx.x / 32 * (16 * TALL);
    const u32 heads = (u32)(p.batches * p.heads), rows = ((u32)p.queries + QUERIES - 1) / QUERIES;
    const u32 row = (rows - 1 - blockIdx.x / heads) * QUERIES, head = blockIdx.x % heads % (u32)p.heads;
    const u32 batch = blockIdx.x % heads / (u32)p.heads, group = head / ((u32)p.heads / (u32)p.groups);
    const Matrix q = MATRIX(q, batch, head, p.queries, p.depth), k = MATRIX(k, batch, group, p.keys, p.depth),
                 v = MATRIX(v, batch, group, p.keys, p.width), g = MATRIX(g, batch, head, p.queries, p.width);
    const float scale = __uint_as_float((u32)p.scale), factor = FACTOR(scale);
    OfKey(*of_keys)[KEYS] = (OfKey(*)[KEYS])(memory + (stages - shared_address(memory)) + 2 * STAGE);
    u32* list = (u32*)(of_keys + 2);
    __shared__ u32 count;
    const u32 t = threadIdx.x;
    const auto load = [&](u32 stage, u32 entry) {
        const u32 key = entry / 4 * KEYS;
        begin_copy<KEYS, DEPTH, OF_ROWS>(stages + stage * STAGE, k, key);
        begin_copy<KEYS, WIDTH, OF_ROWS>(stages + stage * STAGE + K_BYTES, v, key);
    };
    const auto known_of = [&](u32 entry) -> OfKey {
        if (t >= KEYS || !asks(entry % 4)) return {};
        return of_key(p, batch, head, entry / 4 * KEYS + t);
    };
    float sums[TALL][DEPTH / 8][4] = {}, lse[TALL][2], delta[TALL][2];
    for (u32 i = 0; i < TALL; ++i) {
        for (u32 half = 0; half < 2; ++half) {
            const u32 query = row + own_row + 16 * i + 8 * half + lane / 4;
            lse[i][half] = exponent_of(lse_of(p, batch, head, query));
            delta[i][half] = delta_of(p, batch, head, query);
        }
    }
    begin_copy<QUERIES, DEPTH, OF_ROWS>(of_q, q, row);
    begin_copy<QUERIES, WIDTH, OF_ROWS>(of_g, g, row);
    list_tiles(list, &count, (u32)((p.keys + KEYS - 1) / KEYS),
               [&](u32 n) { return seen_of<QUERIES, KEYS>(p, batch, head, row, n * KEYS); });
    if (count > 0) {
        load(0, list[0]);
        if (t < KEYS) of_keys[0][t] = known_of(list[0]);
    }
    commit();
    OfQuery of_queries[TALL][2] = {};
    for (u32 i = 0; i < 2 * TALL && count > 0; ++i) {
        of_queries[i / 2][i % 2] = of_query(p, batch, head, row + own_row + 8 * i + lane / 4);
    }
    for (u32 n = 0; n < count; ++n) {
        const u32 stage = n % 2;
        wait<0>();
        publish();
        __syncthreads(); // the tile is there, and nobody reads the one before it
        OfKey next = {}; // on its way while this tile is computed
        if (n + 1 < count) {
            load(stage ^ 1, list[n + 1]);
            next = known_of(list[n + 1]);
        }
        commit();
        const u8 tile = list[n] % 4;
        const u32 key = list[n] / 4 * KEYS;
        const bool is_plain = !IS_SCALED && tile == FULL && key + KEYS <= p.keys;
        float s[TALL][KEYS / 8][4], ds[TALL][KEYS / 8][4];
        begin_products();
        rows_by_rows<TALL, KEYS, DEPTH, QUERIES>(s, of_q, own_row, stages + stage * STAGE);
        rows_by_rows<TALL, KEYS, WIDTH, QUERIES>(ds, of_g, own_row, stages + stage * STAGE + K_BYTES);
        finish_products();
#pragma unroll
        for (u32 i = 0; i < TALL; ++i) {
#pragma unroll
            for (u32 j = 0; j < KEYS / 8; ++j) {
#pragma unroll
                for (u32 e = 0; e < 4; ++e) {
                    const u32 query = row + own_row + 16 * i + e / 2 * 8 + lane / 4;
                    const u32 column = 8 * j + lane % 4 * 2 + e % 2;
                    differentiate(p, s[i][j][e], ds[i][j][e], scale, factor, lse[i][e / 2], delta[i][e / 2], tile,
                                  is_plain, of_queries[i][e / 2], of_keys[stage][column], batch, head, query,
                                  key + column);
                }
            }
        }
        u32 weights[TALL][KEYS / 16][4];
        round_pairs<TALL, KEYS>(weights, ds);
        begin_products();
        weighted_rows<TALL, KEYS, DEPTH>(sums, weights, stages + stage * STAGE);
        finish_products();
        if (t < KEYS) of_keys[stage ^ 1][t] = next;
    }
    wait<0>();
    float factors[TALL][2];
    for (u32 i = 0; i < TALL; ++i) factors[i][0] = factors[i][1] = scale;
    write_rows<TALL, DEPTH>(sums, factors, MATRIX(dq, batch, head, p.queries, p.depth), row + own_row);
}
#endif

#if HAS_DK || HAS_DV
// Threads of a block of keys are SPLIT teams. A barrier of the threads of one of them.
__device__ __forceinline__ void meet(u32 team) {
    if (SPLIT == 1) {
        __syncthreads();
    } else {
        asm volatile("barrier.sync %0, %1;" ::"r"(1 + team), "n"(OF_KEYS) : "memory");
    }
}

// Adds up what two teams have, in the registers of the first. There is memory for COUNT numbers of a thread.
template <u32 COUNT> __device__ __forceinline__ void add_teams(float (&sums)[COUNT][4], float* memory, u32 team) {
    const u32 t = threadIdx.x % OF_KEYS;
    __syncthreads(); // what was there has been read
#pragma unroll
    for (u32 e = 0; e < 4 * COUNT; ++e) {
        if (team == 1) memory[e * OF_KEYS + t] = sums[e / 4][e % 4];
    }
    __syncthreads();
#pragma unroll
    for (u32 e = 0; e < 4 * COUNT; ++e) {
        if (team == 0) sums[e / 4][e % 4] = __fadd_rn(sums[e / 4][e % 4], memory[e * OF_KEYS + t]);
    }
}

// What a block of keys looks up of a query.
struct Row {
    float lse, delta;
    OfQuery known;
};

// A block has 128 keys of one head, or 64 where there are few blocks, and goes along the queries of all heads that they
// serve. SPLIT teams of OF_KEYS threads take turns at its tiles, each with stages of its own, and add up at the end: so
// the longest of the blocks takes half as long, where blocks are few and differ.
extern "C" __global__ void __launch_bounds__(OF_KEYS * SPLIT)
    NAME(attention_tiles_dkv)(const __grid_constant__ PARAMS p) {
    extern __shared__ __align__(16) u8 memory[];
    constexpr u32 Q_BYTES = tile_bytes(OF_QUERIES, DEPTH), STAGE = Q_BYTES + tile_bytes(OF_QUERIES, WIDTH);
    const u32 of_k = first_tile(memory), of_v = of_k + tile_bytes(OWN_KEYS, DEPTH);
    const u32 first_stage = of_v + tile_bytes(OWN_KEYS, WIDTH), at_stages = first_stage - shared_address(memory);
    const u32 t = threadIdx.x % OF_KEYS, team = threadIdx.x / OF_KEYS, lane = t % 32, own_row = t / 32 * 16;
    const u32 stages = first_stage + team * 2 * STAGE, behind = at_stages + SPLIT * 2 * STAGE;
    float(*rows_of)[2][OF_QUERIES] = (float(*)[2][OF_QUERIES])(memory + behind); // L and delta
    OfQuery(*of_queries)[OF_QUERIES] = (OfQuery(*)[OF_QUERIES])(rows_of + 2 * SPLIT);
    u32* list = (u32*)(of_queries + 2 * SPLIT);
    rows_of += 2 * team;
    of_queries += 2 * team;
    __shared__ u32 count;
    const u32 groups = (u32)(p.batches * p.groups), share = (u32)p.heads / (u32)p.groups;
    const u32 key = blockIdx.x / groups * OWN_KEYS; // the first keys take longest
    const u32 group = blockIdx.x % groups % (u32)p.groups;
    const u32 batch = blockIdx.x % groups / (u32)p.groups;
    const Matrix k = MATRIX(k, batch, group, p.keys, p.depth), v = MATRIX(v, batch, group, p.keys, p.width);
    const float scale = __uint_as_float((u32)p.scale), factor = FACTOR(scale);
    const u32 tiles = ((u32)p.queries + OF_QUERIES - 1) / OF_QUERIES;
    const auto head_of = [&](u32 entry) { return group * share + entry / 4 / tiles; };
    const auto row_of = [&](u32 entry) { return entry / 4 % tiles * OF_QUERIES; };
    const auto load = [&](u32 stage, u32 entry) {
        const u32 head = head_of(entry), row = row_of(entry);
        const Matrix q = MATRIX(q, batch, head, p.queries, p.depth), g = MATRIX(g, batch, head, p.queries, p.width);
        begin_copy<OF_QUERIES, DEPTH, OF_KEYS>(stages + stage * STAGE, q, row);
        begin_copy<OF_QUERIES, WIDTH, OF_KEYS>(stages + stage * STAGE + Q_BYTES, g, row);
    };
    const auto known_of = [&](u32 entry) -> Row {
        if (t >= OF_QUERIES) return {};
        const u32 head = head_of(entry), query = row_of(entry) + t;
        return {lse_of(p, batch, head, query), delta_of(p, batch, head, query),
                asks(entry % 4) ? of_query(p, batch, head, query) : OfQuery{}};
    };
    const auto keep = [&](u32 stage, const Row& row) {
        if (t >= OF_QUERIES) return;
        rows_of[stage][0][t] = exponent_of(row.lse);
        rows_of[stage][1][t] = row.delta;
        of_queries[stage][t] = row.known;
    };
    float dk[1][DEPTH / 8][4] = {}, dv[1][WIDTH / 8][4] = {};
    begin_copy<OWN_KEYS, DEPTH, OF_KEYS * SPLIT>(of_k, k, key);
    begin_copy<OWN_KEYS, WIDTH, OF_KEYS * SPLIT>(of_v, v, key);
    list_tiles(list, &count, share * tiles, [&](u32 n) {
        return seen_of<OF_QUERIES, OWN_KEYS>(p, batch, head_of(4 * n), row_of(4 * n), key);
    });
    if (team < count) {
        load(0, list[team]);
        keep(0, known_of(list[team]));
    }
    commit();
    if (SPLIT > 1) {
        wait<0>(); // for the keys, which all teams copied
        publish();
        __syncthreads();
    }
    OfKey of_keys[2];
    u32 of_head = ~0u; // whose programs they are of
    for (u32 n = team; n < count; n += SPLIT) {
        const u32 stage = n / SPLIT % 2, head = head_of(list[n]), row = row_of(list[n]);
        wait<0>();
        publish();
        meet(team); // the tile is there, and nobody reads the one before it
        Row next = {}; // on its way while this tile is computed
        if (n + SPLIT < count) {
            load(stage ^ 1, list[n + SPLIT]);
            next = known_of(list[n + SPLIT]);
        }
        commit();
        const u8 tile = list[n] % 4;
        const bool is_whole = key + OWN_KEYS <= p.keys && row + OF_QUERIES <= p.queries;
        const bool is_plain = !IS_SCALED && tile == FULL && is_whole;
        if (asks(tile) && head != of_head) {
            for (u32 i = 0; i < 2; ++i) of_keys[i] = of_key(p, batch, head, key + own_row + 8 * i + lane / 4);
            of_head = head;
        }
        const u32 of_q = stages + stage * STAGE, of_g = of_q + Q_BYTES;
        float s[1][OF_QUERIES / 8][4], ds[1][OF_QUERIES / 8][4]; // transposed: rows are keys
        begin_products();
        rows_by_rows<1, OF_QUERIES, DEPTH, OWN_KEYS>(s, of_k, own_row, of_q);
        rows_by_rows<1, OF_QUERIES, WIDTH, OWN_KEYS>(ds, of_v, own_row, of_g);
        finish_products();
#pragma unroll
        for (u32 j = 0; j < OF_QUERIES / 8; ++j) {
#pragma unroll
            for (u32 e = 0; e < 4; ++e) {
                const u32 column = 8 * j + lane % 4 * 2 + e % 2;
                const float lse = rows_of[stage][0][column], delta = rows_of[stage][1][column];
                differentiate(p, s[0][j][e], ds[0][j][e], scale, factor, lse, delta, tile, is_plain,
                              of_queries[stage][column], of_keys[e / 2], batch, head, row + column,
                              key + own_row + e / 2 * 8 + lane / 4);
            }
        }
        u32 weights[1][OF_QUERIES / 16][4], of_scores[1][OF_QUERIES / 16][4];
        round_pairs<1, OF_QUERIES>(weights, s);
        round_pairs<1, OF_QUERIES>(of_scores, ds);
        begin_products();
        weighted_rows<1, OF_QUERIES, WIDTH>(dv, weights, of_g);
        weighted_rows<1, OF_QUERIES, DEPTH>(dk, of_scores, of_q);
        finish_products();
        keep(stage ^ 1, next);
    }
    wait<0>();
#if SPLIT == 2
    add_teams<DEPTH / 8>(dk[0], (float*)(memory + at_stages), team);
    add_teams<WIDTH / 8>(dv[0], (float*)(memory + at_stages), team);
    if (team == 1) return;
#endif
#if HAS_DK
    const float scales[1][2] = {{scale, scale}};
    write_rows<1, DEPTH>(dk, scales, MATRIX(dk, batch, group, p.keys, p.depth), key + own_row);
#endif
#if HAS_DV
    const float ones[1][2] = {{1.0f, 1.0f}};
    write_rows<1, WIDTH>(dv, ones, MATRIX(dv, batch, group, p.keys, p.width), key + own_row);
#endif
}
#endif
#endif
