// Rows of f32 added up where their indices point, in their order: the bits do not depend on how blocks are scheduled.
//
//   Threads. A block a row. It looks whether an earlier row has the same index; if so, that one's block adds this row
//     up too and there is nothing to do here. Else it walks over the later rows and adds those with its index.
//   Bytes. The rows once, the table once, the indices once for each row, from the L2: count^2 * 4 bytes, a tenth of a
//     millisecond for 8192 rows.
//
// Defined before: KERNEL and its struct of words. The table holds zeros.

extern "C" __global__ void __launch_bounds__(256) KERNEL(const __grid_constant__ KERNEL_params p) {
    const u32 t = threadIdx.x;
    const int* index = (const int*)p.index;
    const u64 own = blockIdx.x;
    const int place = index[own];
    if (place < 0 || (u64)place >= p.table) {
        if (t == 0) fail(p.fault, (u32)p.step_id, 0, own, place);
        return;
    }
    bool is_before = false;
    for (u64 other = t; other < own && !is_before; other += 256) is_before = index[other] == place;
    if (__syncthreads_or(is_before)) return;
    const float* rows = (const float*)p.rows;
    float* to = (float*)p.to + (u64)place * p.width;
    __shared__ u32 found[8];
    for (u64 first = own; first < p.count; first += 256) {
        const bool is_same = first + t < p.count && index[first + t] == place;
        const u32 lanes = __ballot_sync(0xffffffffu, is_same);
        if (t % 32 == 0) found[t / 32] = lanes;
        __syncthreads();
        for (u32 warp = 0; warp < 8; ++warp) {
            for (u32 left = found[warp]; left != 0; left &= left - 1) {
                const float* row = rows + (first + warp * 32 + (__ffs(left) - 1)) * p.width;
                for (u64 column = t; column < p.width; column += 256) to[column] = __fadd_rn(to[column], row[column]);
            }
        }
        __syncthreads();
    }
}
