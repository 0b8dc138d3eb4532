// What llama.cpp makes of a GGUF file, for `gguf_llama_cpp.py`.
//
//   gguf_greedy MODEL ADAPTER|- N ID,ID,..     N greedy tokens that follow
//   gguf_greedy MODEL - tokens TEXT            a text's tokens, special ones among them

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "llama.h"

static void print(const std::vector<llama_token> & ids) {
    for (size_t i = 0; i < ids.size(); i++) printf(i ? ",%d" : "%d", ids[i]);
    printf("\n");
}

int main(int argc, char ** argv) {
    if (argc != 5) return 64;
    llama_log_set([](ggml_log_level level, const char * text, void *) {
        if (level >= GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
    }, nullptr);
    llama_backend_init();
    llama_model * model = llama_model_load_from_file(argv[1], llama_model_default_params());
    if (!model) return 1;
    const llama_vocab * vocab = llama_model_get_vocab(model);
    if (!strcmp(argv[3], "tokens")) {
        std::vector<llama_token> ids(strlen(argv[4]) + 8);
        ids.resize(llama_tokenize(vocab, argv[4], strlen(argv[4]), ids.data(), ids.size(), true, true));
        print(ids);
        return 0;
    }
    llama_context_params params = llama_context_default_params();
    params.n_ctx = 256;
    params.n_threads = params.n_threads_batch = 1; // several wait for each other by spinning
    params.type_k = params.type_v = GGML_TYPE_F32; // as the trainer keeps them
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    llama_context * context = llama_init_from_model(model, params);
    if (strcmp(argv[2], "-")) {
        llama_adapter_lora * adapter = llama_adapter_lora_init(model, argv[2]);
        float scale = 1.0f;
        if (!adapter || llama_set_adapters_lora(context, &adapter, 1, &scale)) return 2;
    }
    std::vector<llama_token> prompt;
    for (char * id = strtok(argv[4], ","); id; id = strtok(nullptr, ",")) prompt.push_back(atoi(id));
    std::vector<llama_token> made(atoi(argv[3]));
    llama_batch batch = llama_batch_get_one(prompt.data(), prompt.size());
    for (llama_token & next : made) {
        if (llama_decode(context, batch)) return 3;
        const float * logits = llama_get_logits_ith(context, -1);
        next = 0;
        for (int id = 1; id < llama_vocab_n_tokens(vocab); id++) {
            if (logits[id] > logits[next]) next = id;
        }
        batch = llama_batch_get_one(&next, 1);
    }
    print(made);
}
