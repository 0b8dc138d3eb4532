// What llama.cpp's tower and projector make of pixels, for `gguf_llama_cpp.py`.
//
//   gguf_projector FILE PIXELS WIDTH HEIGHT OUT
//
// PIXELS are f32, normalised, rows of red, green and blue; of two frames one after the other. OUT gets f32.

#include <cstdlib>
#include <fstream>
#include <vector>

#include "clip-impl.h"
#include "clip.h"

int main(int argc, char ** argv) {
    if (argc != 6) return 64;
    clip_context_params params{};
    params.flash_attn_type = CLIP_FLASH_ATTN_TYPE_DISABLED;
    params.image_min_tokens = params.image_max_tokens = -1;
    clip_ctx * context = clip_init(argv[1], params).ctx_v;
    if (!context) return 1;
    int width = atoi(argv[3]), height = atoi(argv[4]);
    std::ifstream file(argv[2], std::ios::binary);
    std::vector<float> pixels((size_t) width * height * 3);
    clip_image_f32_batch frames;
    while (file.read((char *) pixels.data(), pixels.size() * sizeof(float))) {
        clip_image_f32 frame;
        frame.set_size({width, height}, false, false);
        frame.cpy_buf(pixels);
        frames.entries.push_back(frame);
    }
    if (frames.entries.empty()) return 2;
    std::vector<float> features(clip_n_output_tokens(context, &frames.entries[0]) * clip_n_mmproj_embd(context));
    if (!clip_image_batch_encode(context, 2, &frames, features)) return 3;
    std::ofstream(argv[5], std::ios::binary).write((char *) features.data(), features.size() * sizeof(float));
}
