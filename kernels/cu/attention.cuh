// Attention and its gradients, the matrix of scores never in memory: blocks of 64 queries against blocks of 64 keys.
//
//   s[q,k] = score(scale * sum_d Q[q,d] K[k,d])          p[q,k] = mask ? e^(s - L[q]) : 0
//   O[q,w] = sum_k p[q,k] V[k,w]                         L[q] = ln sum_k e^s, where the mask allows
//   dV[k,w] = sum_q p[q,k] G[q,w]                        dp[q,k] = sum_w G[q,w] V[k,w]
//   ds[q,k] = slope(p (dp - delta[q])) * scale           delta[q] = sum_w G[q,w] O[q,w]
//   dQ[q,d] = sum_k ds[q,k] K[k,d]                       dK[k,d] = sum_q ds[q,k] Q[q,d]
//
//   Threads. 256 a block, which owns 64 rows and 64 columns of one result and goes along the other side; a thread has
//     4 x 4 of each tile, 16 apart. A result wider than 64 has several blocks, each of which computes the scores anew.
//   Sums. f32, each in one order, whatever the grid: the bits are the same in every run.
//   Masks. One that does not read the score is looked at first, tile by tile (attention_map); tiles in which it leaves
//     nothing are skipped, and those in which it takes nothing away do not ask it again. What programs make of the
//     query alone, or of the key alone, is computed once for a row, or a column, of a tile: score.rs cuts them.
//
// The first version of the staircase: multiplications and additions one by one, in f32. Reads: Milakov and Gimelshein,
// "Online normalizer calculation for softmax" (2018); Dao, "FlashAttention-2" (2023); Dong et al., "Flex Attention"
// (2024).
//
// Defined before: NAME(x), which makes names of this attention's own; its struct PARAMS; the type E of Q, K, V and O;
// HAS_MAP; score, mask and slope, and what they know of a query, ScoreOfQuery and its like, and of a key; IS_SCALED and
// HAS_SLOPE; USES_TENSOR_CORES: the kernels of attention_tiles.cuh stand for the plain ones.

constexpr u32 TILE = 64, INNER = 32, PAD = 1;
constexpr u8 EMPTY = 0, PARTIAL = 1, FULL = 2;
#define NONE __uint_as_float(0xff800000u)

// A matrix of one head: elements from a row, and from a column, to the next.
struct Matrix {
    u64 at, row, column;
    u64 rows, columns;
};
typedef float Inner[INNER][TILE + PAD];
typedef float Square[TILE][TILE + PAD];

// The matrix of a batch and a head of a view (batch, head, row, column).
#define MATRIX(view, batch, head, rows, columns)                                                                \
    Matrix { p.view + ((batch) * p.view##_s0 + (head) * p.view##_s1) * sizeof(E::Bits), p.view##_s2,            \
             p.view##_s3, rows, columns }

__device__ __forceinline__ float element_of(const Matrix& m, u64 row, u64 column) {
    return row < m.rows && column < m.columns ? fetch<E>(m.at, row * m.row + column * m.column) : 0.0f;
}

// sum[i][j] += a[row + y + 16 i, .] . b[column + x + 16 j, .]
__device__ __forceinline__ void rows_by_rows(float sum[4][4], const Matrix& a, u64 row, const Matrix& b, u64 column,
                                             Inner& left, Inner& right) {
    const u32 t = threadIdx.x, x = t % 16, y = t / 16;
    for (u64 first = 0; first < a.columns; first += INNER) {
        __syncthreads();
        for (u32 e = t; e < TILE * INNER; e += 256) {
            left[e % INNER][e / INNER] = element_of(a, row + e / INNER, first + e % INNER);
            right[e % INNER][e / INNER] = element_of(b, column + e / INNER, first + e % INNER);
        }
        __syncthreads();
#pragma unroll 8
        for (u32 k = 0; k < INNER; ++k) {
#pragma unroll
            for (u32 i = 0; i < 4; ++i) {
#pragma unroll
                for (u32 j = 0; j < 4; ++j) sum[i][j] = __fmaf_rn(left[k][y + 16 * i], right[k][x + 16 * j], sum[i][j]);
            }
        }
    }
}

// sum[i][j] += weights[y + 16 i, .] . m[row + ., column + x + 16 j], or of the weights' columns.
template <bool TRANSPOSED>
__device__ __forceinline__ void weighted(float sum[4][4], const Square& weights, const Matrix& m, u64 row, u64 column,
                                         Inner& tile) {
    const u32 t = threadIdx.x, x = t % 16, y = t / 16;
    for (u32 half = 0; half < TILE; half += INNER) {
        __syncthreads();
        for (u32 e = t; e < TILE * INNER; e += 256) {
            tile[e / TILE][e % TILE] = element_of(m, row + half + e / TILE, column + e % TILE);
        }
        __syncthreads();
#pragma unroll 8
        for (u32 k = 0; k < INNER; ++k) {
#pragma unroll
            for (u32 i = 0; i < 4; ++i) {
                const float weight = TRANSPOSED ? weights[half + k][y + 16 * i] : weights[y + 16 * i][half + k];
#pragma unroll
                for (u32 j = 0; j < 4; ++j) sum[i][j] = __fmaf_rn(weight, tile[k][x + 16 * j], sum[i][j]);
            }
        }
    }
    __syncthreads(); // the weights may be written again
}

// Joins what the 16 threads of a row have.
template <class Join> __device__ __forceinline__ float of_row(float value) {
    return together<Join, 16>(value, nullptr);
}

// What a mask leaves of a tile.
__device__ __forceinline__ u8 seen(const PARAMS& p, u64 batch, u64 head, u64 row, u64 column) {
#if HAS_MAP
    const u64 kind = (p.map_batches == 1 ? 0 : batch) * p.map_heads + (p.map_heads == 1 ? 0 : head);
    return ((const u8*)p.map)[(kind * p.map_rows + row / TILE) * p.map_columns + column / TILE];
#elif HAS_MASK
    return PARTIAL;
#else
    return FULL;
#endif
}

// What the programs know of a query, and of a key.
struct OfQuery : ScoreOfQuery, MaskOfQuery, SlopeOfQuery {};
struct OfKey : ScoreOfKey, MaskOfKey, SlopeOfKey {};

// Nothing is asked where there are no scores: an extra may be as empty as the keys are.
__device__ __forceinline__ OfQuery of_query(const PARAMS& p, u32 batch, u32 head, u32 query) {
    if (query >= p.queries || p.keys == 0) return {};
    return {score_of_query(p, batch, head, query), mask_of_query(p, batch, head, query),
            slope_of_query(p, batch, head, query)};
}
__device__ __forceinline__ OfKey of_key(const PARAMS& p, u32 batch, u32 head, u32 key) {
    if (key >= p.keys || p.queries == 0) return {};
    return {score_of_key(p, batch, head, key), mask_of_key(p, batch, head, key), slope_of_key(p, batch, head, key)};
}

// Whether a program is asked in a tile of which the mask leaves so much.
__device__ __forceinline__ bool asks(u8 tile) { return IS_SCALED || HAS_SLOPE || tile == PARTIAL; }

// scale q . k; a product of no numbers is 0, whatever the scale.
__device__ __forceinline__ float raw_score(const PARAMS& p, float product) {
    return p.depth == 0 ? 0.0f : __fmul_rn(product, __uint_as_float((u32)p.scale));
}

// The score of a lane as its programs make it, -inf where it does not count. `raw` is scale q . k.
__device__ __forceinline__ float scored(const PARAMS& p, float raw, u8 tile, const OfQuery& of_query,
                                        const OfKey& of_key, u32 batch, u32 head, u32 query, u32 key) {
    if (query >= (u32)p.queries || key >= (u32)p.keys) return NONE;
    const float s = score(p, raw, of_query, of_key, batch, head, query, key);
#if HAS_MASK
    if (tile == PARTIAL && !mask(p, s, of_query, of_key, batch, head, query, key)) return NONE;
#endif
    return s;
}

#if HAS_MAP
// A warp a tile, a block eight of one row: whether the mask allows none, some or all of it. A lane has two keys.
extern "C" __global__ void __launch_bounds__(256) NAME(attention_map)(const __grid_constant__ PARAMS p) {
    __shared__ MaskOfQuery of_queries[TILE];
    const u32 t = threadIdx.x, across = ((u32)p.map_columns + 7) / 8, line = blockIdx.x / across;
    const u32 row = line % (u32)p.map_rows * TILE, head = line / (u32)p.map_rows % (u32)p.map_heads;
    const u32 batch = line / (u32)p.map_rows / (u32)p.map_heads, column = blockIdx.x % across * 8 + t / 32;
    const u32 queries = min((u32)p.queries - row, TILE), keys = (u32)p.keys;
    if (t < queries) of_queries[t] = mask_of_query(p, batch, head, row + t);
    __syncthreads();
    bool some = false, all = true;
#pragma unroll
    for (u32 key = column * TILE + t % 32, half = 0; half < 2; key += 32, ++half) {
        if (key >= keys) continue;
        const MaskOfKey of_key = mask_of_key(p, batch, head, key);
#pragma unroll 8
        for (u32 r = 0; r < queries; ++r) {
            const bool is_allowed = mask(p, 0.0f, of_queries[r], of_key, batch, head, row + r, key);
            some |= is_allowed;
            all &= is_allowed;
        }
    }
    const bool any = __any_sync(0xffffffffu, some), every = __all_sync(0xffffffffu, all);
    if (t % 32 == 0 && column < (u32)p.map_columns) {
        ((u8*)p.map)[line * p.map_columns + column] = !any ? EMPTY : every ? FULL : PARTIAL;
    }
}
#endif

#if FORWARD
#if !USES_TENSOR_CORES
extern "C" __global__ void __launch_bounds__(256) NAME(attention)(const __grid_constant__ PARAMS p) {
    __shared__ Inner left, right;
    __shared__ Square weights;
    const u32 t = threadIdx.x, x = t % 16, y = t / 16;
    u64 rest = blockIdx.x;
    const u64 column = rest % p.widths * TILE; // of the output
    rest /= p.widths;
    const u64 row = (p.rows - 1 - rest % p.rows) * TILE; // under a causal mask the last rows take longest
    rest /= p.rows;
    const u64 head = rest % p.heads, batch = rest / p.heads, group = head / (p.heads / p.groups);
    const Matrix q = MATRIX(q, batch, head, p.queries, p.depth), k = MATRIX(k, batch, group, p.keys, p.depth),
                 v = MATRIX(v, batch, group, p.keys, p.width);
    float largest[4], total[4], output[4][4] = {};
    OfQuery of_queries[4] = {};
    bool is_known = false;
    for (u32 i = 0; i < 4; ++i) {
        largest[i] = NONE;
        total[i] = 0.0f;
    }
    for (u64 key = 0; key < p.keys; key += TILE) {
        const u8 tile = seen(p, batch, head, row, key);
        if (tile == EMPTY) continue;
        float s[4][4] = {};
        rows_by_rows(s, q, row, k, key, left, right);
        OfKey of_keys[4] = {};
        for (u32 j = 0; j < 4 && asks(tile); ++j) of_keys[j] = of_key(p, batch, head, key + x + 16 * j);
        if (asks(tile) && !is_known) {
            for (u32 i = 0; i < 4; ++i) of_queries[i] = of_query(p, batch, head, row + y + 16 * i);
            is_known = true;
        }
        for (u32 i = 0; i < 4; ++i) {
            float most = NONE;
            for (u32 j = 0; j < 4; ++j) {
                const float raw = raw_score(p, s[i][j]);
                s[i][j] = scored(p, raw, tile, of_queries[i], of_keys[j], batch, head, row + y + 16 * i,
                                 key + x + 16 * j);
                most = larger(most, s[i][j]);
            }
            most = larger(largest[i], of_row<Max>(most));
            const float base = most == NONE ? 0.0f : most, factor = expf(largest[i] - base);
            float sum = 0.0f;
            for (u32 j = 0; j < 4; ++j) {
                s[i][j] = expf(s[i][j] - base);
                sum = __fadd_rn(sum, s[i][j]);
                weights[y + 16 * i][x + 16 * j] = s[i][j];
                output[i][j] = __fmul_rn(output[i][j], factor);
            }
            total[i] = __fadd_rn(__fmul_rn(total[i], factor), of_row<Sum>(sum));
            largest[i] = most;
        }
        weighted<false>(output, weights, v, key, column, left);
    }
    for (u32 i = 0; i < 4; ++i) {
        const u64 query = row + y + 16 * i;
        if (query >= p.queries) continue;
        const bool is_blind = total[i] == 0.0f;
        for (u32 j = 0; j < 4; ++j) {
            const u64 to = column + x + 16 * j;
            if (to >= p.width) continue;
            const u64 at = batch * p.o_s0 + head * p.o_s1 + query * p.o_s2 + to * p.o_s3;
            ((E::Bits*)p.o)[at] = E::write(is_blind ? 0.0f : __fdiv_rn(output[i][j], total[i]));
        }
#if HAS_LSE
        if (x == 0 && column == 0) {
            const u64 at = batch * p.lse_s0 + head * p.lse_s1 + query * p.lse_s2;
            ((float*)p.lse)[at] = is_blind ? NONE : __fadd_rn(largest[i], logf(total[i]));
        }
#endif
    }
}
#endif
#else

// delta[q] = G[q] . O[q], a warp a query.
extern "C" __global__ void __launch_bounds__(256) NAME(attention_delta)(const __grid_constant__ PARAMS p) {
    const u64 own = (u64)blockIdx.x * 8 + threadIdx.x / 32, count = p.batches * p.heads * p.queries;
    const u64 n = own < count ? own : count - 1;
    const u64 query = n % p.queries, head = n / p.queries % p.heads, batch = n / p.queries / p.heads;
    const Matrix o = MATRIX(o, batch, head, p.queries, p.width), g = MATRIX(g, batch, head, p.queries, p.width);
    float sum = 0.0f;
#if USES_TENSOR_CORES // rows lie side by side, in whole packs
    for (u64 w = threadIdx.x % 32 * 4; w < p.width; w += 128) {
        const auto a = load<E, 4>(g.at, query * g.row + w), b = load<E, 4>(o.at, query * o.row + w);
#pragma unroll
        for (u32 i = 0; i < 4; ++i) sum = __fmaf_rn(E::read(a.bits[i]), E::read(b.bits[i]), sum);
    }
#else
    for (u64 w = threadIdx.x % 32; w < p.width; w += 32) {
        sum = __fmaf_rn(element_of(g, query, w), element_of(o, query, w), sum);
    }
#endif
    sum = together<Sum, 32>(sum, nullptr);
    if (own < count && threadIdx.x % 32 == 0) ((float*)p.delta)[n] = sum;
}

#if !USES_TENSOR_CORES
// The probabilities of a tile, and the gradients of its scores if they are asked for, in `to`.
template <bool OF_SCORES>
__device__ __forceinline__ void probabilities(const PARAMS& p, u64 batch, u64 head, u64 row, u64 key, u8 tile,
                                              Inner& left, Inner& right, Square& to) {
    const u32 t = threadIdx.x, x = t % 16, y = t / 16;
    const u64 group = head / (p.heads / p.groups);
    const Matrix q = MATRIX(q, batch, head, p.queries, p.depth), k = MATRIX(k, batch, group, p.keys, p.depth);
    float s[4][4] = {}, dp[4][4] = {};
    OfKey of_keys[4] = {};
    for (u32 j = 0; j < 4 && asks(tile); ++j) of_keys[j] = of_key(p, batch, head, key + x + 16 * j);
    rows_by_rows(s, q, row, k, key, left, right);
    if (OF_SCORES) {
        const Matrix g = MATRIX(g, batch, head, p.queries, p.width), v = MATRIX(v, batch, group, p.keys, p.width);
        rows_by_rows(dp, g, row, v, key, left, right);
    }
    for (u32 i = 0; i < 4; ++i) {
        const u64 query = row + y + 16 * i;
        const bool is_there = query < p.queries;
        const u64 n = (batch * p.heads + head) * p.queries + query;
        const float lse =
            is_there ? ((const float*)p.lse)[batch * p.lse_s0 + head * p.lse_s1 + query * p.lse_s2] : NONE;
        const float delta = OF_SCORES && is_there ? ((const float*)p.delta)[n] : 0.0f;
        const OfQuery known = asks(tile) ? of_query(p, batch, head, query) : OfQuery{};
        for (u32 j = 0; j < 4; ++j) {
            const u64 at = key + x + 16 * j;
            const float raw = raw_score(p, s[i][j]);
            const float now = scored(p, raw, tile, known, of_keys[j], batch, head, query, at);
            float value = now == NONE || lse == NONE ? 0.0f : expf(now - lse);
            if (OF_SCORES && is_there && at < p.keys) {
                const float ds = __fmul_rn(value, __fadd_rn(dp[i][j], -delta));
                value = now == NONE ? 0.0f : slope(p, raw, ds, known, of_keys[j], batch, head, query, at);
            }
            to[y + 16 * i][x + 16 * j] = value;
        }
    }
}

// Writes a tile of a gradient.
__device__ __forceinline__ void write(float sum[4][4], float factor, const Matrix& to, u64 row, u64 column) {
    const u32 x = threadIdx.x % 16, y = threadIdx.x / 16;
    for (u32 i = 0; i < 4; ++i) {
        for (u32 j = 0; j < 4; ++j) {
            const u64 r = row + y + 16 * i, c = column + x + 16 * j;
            if (r < to.rows && c < to.columns) {
                ((E::Bits*)to.at)[r * to.row + c * to.column] = E::write(__fmul_rn(sum[i][j], factor));
            }
        }
    }
}

#if HAS_DQ
extern "C" __global__ void __launch_bounds__(256) NAME(attention_dq)(const __grid_constant__ PARAMS p) {
    __shared__ Inner left, right;
    __shared__ Square weights;
    u64 rest = blockIdx.x;
    const u64 column = rest % p.depths * TILE;
    rest /= p.depths;
    const u64 row = (p.rows - 1 - rest % p.rows) * TILE;
    rest /= p.rows;
    const u64 head = rest % p.heads, batch = rest / p.heads, group = head / (p.heads / p.groups);
    const Matrix k = MATRIX(k, batch, group, p.keys, p.depth);
    float sum[4][4] = {};
    for (u64 key = 0; key < p.keys; key += TILE) {
        const u8 tile = seen(p, batch, head, row, key);
        if (tile == EMPTY) continue;
        probabilities<true>(p, batch, head, row, key, tile, left, right, weights);
        weighted<false>(sum, weights, k, key, column, left);
    }
    write(sum, __uint_as_float((u32)p.scale), MATRIX(dq, batch, head, p.queries, p.depth), row, column);
}
#endif

#if HAS_DK || HAS_DV
// A block a tile of dK or dV: its keys, against the queries of all heads that they serve.
template <bool OF_KEYS> __device__ __forceinline__ void of_keys(const PARAMS& p, u64 rest, Inner& left, Inner& right,
                                                                Square& weights) {
    const u64 columns = OF_KEYS ? p.depths : p.widths;
    const u64 column = rest % columns * TILE;
    rest /= columns;
    const u64 key = rest % p.columns * TILE;
    rest /= p.columns;
    const u64 group = rest % p.groups, batch = rest / p.groups, share = p.heads / p.groups;
    float sum[4][4] = {};
    for (u64 head = group * share; head < (group + 1) * share; ++head) {
        const Matrix q = MATRIX(q, batch, head, p.queries, p.depth), g = MATRIX(g, batch, head, p.queries, p.width);
        for (u64 row = 0; row < p.queries; row += TILE) {
            const u8 tile = seen(p, batch, head, row, key);
            if (tile == EMPTY) continue;
            probabilities<OF_KEYS>(p, batch, head, row, key, tile, left, right, weights);
            weighted<true>(sum, weights, OF_KEYS ? q : g, row, column, left);
        }
    }
#if HAS_DK
    if (OF_KEYS) write(sum, __uint_as_float((u32)p.scale), MATRIX(dk, batch, group, p.keys, p.depth), key, column);
#endif
#if HAS_DV
    if (!OF_KEYS) write(sum, 1.0f, MATRIX(dv, batch, group, p.keys, p.width), key, column);
#endif
}

extern "C" __global__ void __launch_bounds__(256) NAME(attention_dkv)(const __grid_constant__ PARAMS p) {
    __shared__ Inner left, right;
    __shared__ Square weights;
    const u64 own = blockIdx.x, of_k = HAS_DK ? p.batches * p.groups * p.columns * p.depths : 0;
    if (own < of_k) {
        of_keys<true>(p, own, left, right, weights);
    } else {
        of_keys<false>(p, own - of_k, left, right, weights);
    }
}
#endif
#endif
#endif
