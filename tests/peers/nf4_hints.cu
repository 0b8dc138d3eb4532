// Versions of the staircase outside the grader: what hints are worth where content stays, and what stores send.
//
//   nvcc -arch=sm_90 -std=c++17 -Xcompiler -fpermissive -I kernels/cu -I challenges/src/nf4
//        -DOUTPUT_BF16=1 -DINLINE_PTX=1 '-D__nvvm_h2f(x)=0.0f' -o nf4_hints tests/peers/nf4_hints.cu
//   ./nf4_hints                   us a launch in graphs of 20: after a read of twice the L2, graph after graph; then
//                                 eight launches one by one after 20 of v05
//   ncu ... ./nf4_hints once      one launch of each kernel that differs in its stores
#include <algorithm>
#include <cstdio>

#include "warpbook.cuh"
#undef LAUNCH
#define LAUNCH(...)                            // the host of this file launches for itself
#include "staircase.cu"

#define EACH(count) for (u64 i = blockIdx.x * 512 + threadIdx.x; i < count; i += 2048 * 512)

__global__ void noise(u32* p) { EACH(1 << 30) p[i] = (i + 1) * 0x9e3779b97f4a7c15ull >> 33 & 0x3f7f7f7f; }
__global__ void scan(u32* p) {
    u32 x = 0;
    EACH(26 << 20) x ^= p[i];                  // 104 MiB, twice the L2 of an H100
    if (x == 1) *p = x;
}
// Each store of 16 bytes fills half of every sector that it touches.
__global__ void halves(const Weight w, uint4* out) {
    const u64 i = blockIdx.x * 256ull + threadIdx.x;
    for (u32 k = 0; k < 2; k++) out[2 * i + k] = make_uint4(k, i, 2, 3);
}
// Eight stores of 2 bytes that lie 16 bytes apart.
__global__ void eighths(const Weight w, Out* out) {
    const u64 i = blockIdx.x * 256ull + threadIdx.x;
    for (u32 k = 0; k < 8; k++) out[8 * i + k] = i + k;
}

const u64 n = 4096 * 14336;
cudaStream_t stream;
cudaEvent_t events[9];
char* pool;

// Launch number i of 20, each with codes, scale codes and outputs of its own.
void go(const void* kernel, u64 i) {
    Weight w = {(u8*)pool + n / 2 * i, (u8*)pool + n / 64 * i, (float*)pool, (float*)pool, n, 0.01f, 6, 8, {}};
    char* out = pool + (1 << 30) + 2 * n * i;
    void* arguments[] = {&w, &out};
    cudaLaunchKernel(kernel, n / 2048, 256, arguments, 0, stream);
}
float us(int i) {
    float ms;
    cudaEventElapsedTime(&ms, events[i], events[i + 1]);
    return ms * 1e3;
}

void time_one(const void* kernel) {
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    for (int i = 0; i < 20; i++) go(kernel, i);
    cudaStreamEndCapture(stream, &graph);
    cudaGraphInstantiate(&ready, graph, 0);
    for (int clean : {1, 0}) {
        float times[40];
        for (auto& time : times) {
            if (clean) scan<<<2048, 512, 0, stream>>>((u32*)pool);
            cudaEventRecord(events[0], stream);
            cudaGraphLaunch(ready, stream);
            cudaEventRecord(events[1], stream);
            cudaStreamSynchronize(stream);
            time = us(0) / 20;
        }
        std::sort(times + 8, times + 40);
        printf("%6.2f ", times[24]);
    }
    for (int i = 0; i < 20; i++) go((const void*)v05_table_shared, i);
    for (int i = 0; i < 9; i++) {
        cudaEventRecord(events[i], stream);
        if (i < 8) go(kernel, i);
    }
    cudaStreamSynchronize(stream);
    for (int i = 0; i < 8; i++) printf(" %.1f", us(i));
    puts("");
}

// Constant codes: nothing holds the stores up.
void launch_once() {
    cudaMemset(pool, 0x11, 4 * n);
    Weight w = {(u8*)pool, (u8*)pool + n, (float*)(pool + n), (float*)(pool + n), n, 0.01f, 6, 8, {}};
    Out* out = (Out*)(pool + 2 * n);
    v01_naive<<<n / 256, 256>>>(w, out);
    v03_wide_loads<<<n / 2048, 256>>>(w, out);
    v04_wide_stores<<<n / 2048, 256>>>(w, out);
    v05_table_shared<<<n / 2048, 256>>>(w, out);
    v34_ahead_shuffle<<<n / 4096, 256>>>(w, out);
    halves<<<n / 4096, 256>>>(w, (uint4*)out);
    eighths<<<n / 2048, 256>>>(w, out);
}

int main(int argc, char**) {
    cudaStreamCreate(&stream);
    for (auto& event : events) cudaEventCreate(&event);
    cudaMalloc(&pool, 4ull << 30);
    if (argc > 1) {
        launch_once();
    } else {
        noise<<<2048, 512, 0, stream>>>((u32*)pool);
        for (auto kernel : {v05_table_shared, v11_store_hint, v12_load_hint, v13_hints, v14_store_skip})
            time_one((const void*)kernel);
    }
    puts(cudaGetErrorString(cudaDeviceSynchronize()));
}
