// The parts of the vector kernels of linear attention. Each can be run alone, so that a table shows which parts of a kernel run
// at the rate of the multiply-adds and which do not.
#pragma once

#include <cstdint>

namespace attnbench {

constexpr int64_t kPartDim = 64;  // the dimensions of keys and values

// Data of one head of 64 dimensions in float32 for all parts. The pointers are aligned to 64 bytes and stay valid.
struct PartData {
  int64_t length = 0;                                                  // positions of q, k, v, output and the gradients
  float *q, *k, *v, *output, *grad_output, *grad_q, *grad_k, *grad_v;  // [length][64]
  float *normalizer, *grad_normalizer;                                 // [length]
  float *state, *state_vector;                                         // [64][64], [64]
  float *rows, *features, *left, *scores, *products;                   // [16][64], [16][64], [64][16], [16][16], [64][64]
  float* value_shift;                                                  // [64]
  float* scratch;
};

// A part that processes one chunk of 16 positions, or a pass over many of them.
struct Part {
  const char* name;
  // The multiply-adds of vectors in one chunk, and the loads and stores of the tiles that compute them. A part without products
  // has 0 of each. A whole pass has no loads and stores, and its multiply-adds are those that the formula of the method counts.
  int64_t multiply_adds, loads, stores;
  bool whole_pass;  // whether a call processes all positions of the data; otherwise each call processes the same chunk
  bool streams;     // whether each position of a whole pass has rows of its own; otherwise all positions share one row
  void (*run)(const PartData&);
};

struct Parts {
  const Part* parts;
  int64_t count;
  int64_t lanes;                    // numbers in a vector
  int64_t chain_length;             // multiply-adds of vectors in one call of `chains`
  void (*chains)(const PartData&);  // independent multiply-adds in registers
  int64_t scratch_size;
};

// The parts compiled for each instruction set. Call them only on a processor that has the set. These are weak symbols, which are
// null if the build lacks the set.
[[gnu::weak]] Parts parts_avx2();
[[gnu::weak]] Parts parts_avx512();

// Times all parts on one thread for every instruction set that this processor has, and prints a table in Markdown for each.
void print_parts();

}  // namespace attnbench
