// The traffic of challenge A and nothing else: how fast a card moves 0.516 bytes read for 2 written.
//
// A streaming kernel reads the codes and scales of a weight and stores what it read: no table, no product, no
// rounding. T a lane a load, LOADS of them before the first store; PREFETCH: codes into the L2 two waves ahead, as
// dequantize does. All are launched with overlap, 20 in a graph, each with a weight of its own, after twice the L2
// was read. Beside them, in turns: a copy of 1 GiB; copies of as many bytes as the case has, half read and half
// written, 20 in a graph; the solution. Medians of 31 rounds.
//
//   nvcc -O3 -arch=sm_90 -std=c++17 -Xcompiler -fpermissive -I kernels/cu -I challenges/src/nf4
//        -DOUTPUT_BF16=1 -DINLINE_PTX=1 '-D__nvvm_h2f(x)=0.0f' -o nf4_stream tests/peers/nf4_stream.cu
//   ./nf4_stream                               times
//   ncu ... ./nf4_stream once                  one launch each, for the profiler
#include <algorithm>
#include <cstdio>
#include <functional>
#include <vector>

#include "warpbook.cuh"
#undef LAUNCH
#define LAUNCH(...)                            // the host of this file launches for itself
#include "solution.cu"

#define OK(call) do { auto e = call; if (e) { printf("%s: %s\n", #call, cudaGetErrorString(e)); exit(1); } } while (0)

template <class T, u32 LOADS, bool PREFETCH>
__global__ void __launch_bounds__(256) mix(const __grid_constant__ Weight w, uint4* out) {
    constexpr u32 STORES = sizeof(T) / 4, PART = 32 * LOADS * 2 * sizeof(T), BLOCK = 8 * PART, LINES = BLOCK / 256;
    const u32 t = threadIdx.x, lane = t % 32;
    auto fetch = [&](u64 tile) {
        if (tile * BLOCK >= w.len) return;
        if (t < LINES) fetch_ahead(w.packed + tile * BLOCK / 2 + 128 * t);
        else if (t - LINES < BLOCK / 8192 + 1) fetch_ahead(w.codes + tile * BLOCK / 64 + 128 * (t - LINES));
    };
    if (PREFETCH) fetch(blockIdx.x + AHEAD);
    if (PREFETCH && blockIdx.x < AHEAD) fetch(blockIdx.x);
    let_next_begin();
    wait_for_previous();
    const u64 e = (u64)blockIdx.x * BLOCK + t / 32 * PART;     // the warp's first element
    T word[LOADS];
    for (u32 i = 0; i < LOADS; i++) word[i] = __ldcs((const T*)(w.packed + e / 2) + 32 * i + lane);
    u32 more = 0;
    for (u32 i = lane; i < PART / 64; i += 32) more += w.codes[e / 64 + i];
    if (lane == 0) more += (u32)w.scales[e >> 14];
    for (u32 i = 0; i < LOADS * STORES; i++) {
        const u32 x = ((const u32*)word)[i] + more;
        __stcs(out + e / 8 + 32 * i + lane, make_uint4(x, x + 1, x + 2, x + 3));
    }
}

__global__ void noise(u32* to, u64 n) {
    for (u64 i = blockIdx.x * 512ull + threadIdx.x; i < n; i += gridDim.x * 512ull)
        to[i] = (i + 1) * 0x9e3779b97f4a7c15ull >> 33;
}
__global__ void scan(const uint4* from, u64 n, u32 pattern, u32* count) {
    u32 same = 0;
    for (u64 i = blockIdx.x * 512ull + threadIdx.x; i < n; i += gridDim.x * 512ull)
        same += from[i].x == pattern && from[i].y == pattern;
    if (same) atomicAdd(count, same);
}

cudaStream_t s;
void go(void* kernel, u64 blocks, const Weight& w, void* out) {
    cudaLaunchAttribute overlap = {cudaLaunchAttributeProgrammaticStreamSerialization};
    overlap.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t c = {dim3(blocks), dim3(256), 0, s, &overlap, 1};
    void* arguments[] = {(void*)&w, &out};
    OK(cudaLaunchKernelExC(&c, kernel, arguments));
}
double median(std::vector<double> v) { std::sort(v.begin(), v.end()); return v[v.size() / 2]; }

int main(int argc, char**) {
    cudaDeviceProp p;
    OK(cudaGetDeviceProperties(&p, 0));
    OK(cudaStreamCreate(&s));
    printf("%s, %d SMs, %d bytes of L2, November 2026\n", p.name, p.multiProcessorCount, p.l2CacheSize);
    const u64 GIB = 1ull << 30, POOL = (argc > 1 ? 3 : 26) * GIB;
    char* pool;
    OK(cudaMalloc(&pool, POOL));
    noise<<<4096, 512, 0, s>>>((u32*)pool, POOL / 4);
    u32* count = (u32*)pool;
    cudaEvent_t a, b;
    cudaEventCreate(&a);
    cudaEventCreate(&b);
    for (u64 n : {1024 * 4096, 2048 * 8192, 4096 * 14336, 8192 * 28672}) {
        const double bytes = n * (2.5 + 1 / 64. + 1 / 4096.);
        const int calls = argc > 1 ? 1 : 20;
        if (argc > 1 && n != 4096 * 14336) continue;
        Weight w[20];
        char *out[20], *at = pool + 2 * GIB;
        auto take = [&](u64 k) { return (at += (k + 511) / 512 * 512) - (k + 511) / 512 * 512; };
        for (int i = 0; i < calls; i++) {
            w[i] = {(u8*)take(n / 2), (u8*)take(n / 64), (float*)take(n / 4096), (float*)take(1024)};
            w[i].len = n, w[i].offset = 0.01f, w[i].block_shift = 6, w[i].nested_shift = 8;
            for (int k = 0; k < 16; k++) w[i].table[k] = k / 8.f - 1;
            out[i] = take(2 * n);
        }
        std::vector<std::pair<const char*, std::function<void()>>> all;
        auto add = [&](const char* name, auto kernel, u64 block) {
            all.push_back({name, [=, &w, &out] {
                for (int i = 0; i < calls; i++) go((void*)kernel, n / block, w[i], out[i]);
            }});
        };
        add("solution", dequantize, TILE);
        add("4 B x 2", mix<u32, 2, false>, 4096);
        add("4 B x 2 ahead", mix<u32, 2, true>, 4096);
        add("4 B x 4", mix<u32, 4, false>, 8192);
        add("4 B x 4 ahead", mix<u32, 4, true>, 8192);
        add("8 B x 1", mix<uint2, 1, false>, 4096);
        add("8 B x 1 ahead", mix<uint2, 1, true>, 4096);
        add("16 B x 1", mix<uint4, 1, false>, 8192);
        add("16 B x 1 ahead", mix<uint4, 1, true>, 8192);
        add("16 B x 2", mix<uint4, 2, false>, 16384);
        add("16 B x 2 ahead", mix<uint4, 2, true>, 16384);
        all.push_back({"copies", [&] {
            for (int i = 0; i < calls; i++)
                cudaMemcpyAsync(out[i], w[i].packed, bytes / 2, cudaMemcpyDeviceToDevice, s);
        }});
        std::vector<cudaGraphExec_t> graphs;
        for (auto& [name, run] : all) {
            for (int i = 0; i < calls; i++) OK(cudaMemsetAsync(out[i], 0xab, 2 * n, s));
            OK(cudaMemsetAsync(count, 0, 4, s));
            run();
            for (int i = 0; i < calls; i++) scan<<<1024, 512, 0, s>>>((uint4*)out[i], n / 8, 0xabababab, count);
            u32 unwritten;
            OK(cudaMemcpyAsync(&unwritten, count, 4, cudaMemcpyDeviceToHost, s));
            OK(cudaStreamSynchronize(s));
            if (unwritten && &run != &all.back().second) printf("%s leaves %u x 16 bytes unwritten\n", name, unwritten);
            cudaGraph_t graph;
            OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
            run();
            OK(cudaStreamEndCapture(s, &graph));
            graphs.emplace_back();
            OK(cudaGraphInstantiate(&graphs.back(), graph, 0));
        }
        if (argc > 1) return 0;
        std::vector<std::vector<double>> us(all.size() + 1);
        for (int round = 0; round < 33; round++)
            for (size_t i = 0; i <= all.size(); i++) {
                scan<<<528, 512, 0, s>>>((uint4*)pool, 2ull * p.l2CacheSize / 16, 0x5eed5eed, count);
                cudaEventRecord(a, s);
                if (i < all.size()) cudaGraphLaunch(graphs[i], s);
                else cudaMemcpyAsync(pool + GIB, pool, GIB, cudaMemcpyDeviceToDevice, s);
                cudaEventRecord(b, s);
                OK(cudaStreamSynchronize(s));
                float ms;
                cudaEventElapsedTime(&ms, a, b);
                if (round > 1) us[i].push_back(ms * 1e3 / (i < all.size() ? calls : 1));
            }
        const auto& copy = us.back();
        const double rate = 2e-3 * GIB / median(copy), best = 2e-3 * GIB / *std::min_element(copy.begin(), copy.end());
        printf("\n%llu elements to bf16, %.0f bytes; a copy of 1 GiB: %.0f GB/s, the fastest %.0f; so %.2f us\n", n,
               bytes, rate, best, bytes / rate / 1e3);
        for (size_t i = 0; i < all.size(); i++) {
            const double m = median(us[i]), low = *std::min_element(us[i].begin(), us[i].end());
            printf("  %-15s %7.2f us, fastest %7.2f %6.0f GB/s %6.1f %% of the copy\n", all[i].first, m, low,
                   bytes / m / 1e3, bytes / m / rate / 10);
        }
    }
}
