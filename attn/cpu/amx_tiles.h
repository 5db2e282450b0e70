// The few instructions of Intel's AMX that kernels use, for bfloat16: eight registers, the tiles, of 16 rows of 64 bytes each.
// AmxTiles executes the instructions; EmulatedTiles computes the same on any processor, so that tests can prove the layout of
// buffers where there is no AMX.
//
//   zero<t>()                  tile t becomes zeros
//   load<t>(from, stride)      row r of tile t becomes the 64 bytes at from + r · stride, where `stride` is in bytes
//   store<t>(to, stride)       the reverse
//   multiply_add<c, a, b>()    C[i][j] += Σ_k A[i][k] · B[k][j] for i, j < 16 and k < 32, where C holds float32 and A bfloat16.
//                              Row k/2 of tile b holds pairs: B[k][j] and B[k+1][j] are neighbours.
//   begin(), end()             configure the tiles before the first and release them after the last of these instructions
#pragma once

#include <cstdint>
#include <cstring>

namespace attn::cpu {
namespace {  // each instruction set needs its own copy, see simd.h

constexpr int64_t kTileBytes = 64;  // of a row

#ifdef __x86_64__
// The instructions are written in assembly because the compiler's functions do not tell it that they read memory.
struct AmxTiles {
  static void begin() {
    alignas(64) static constexpr struct {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } configuration;
    static_assert(sizeof(configuration) == 64);
    asm volatile("ldtilecfg %0" ::"m"(configuration) : "memory");
  }
  static void end() { asm volatile("tilerelease" ::: "memory"); }

  template <int t>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(t));
  }
  template <int t>
  static void load(const void* from, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(t) : "memory");
  }
  template <int t>
  static void store(void* to, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(t) : "memory");
  }
  template <int c, int a, int b>
  static void multiply_add() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(c), "i"(a), "i"(b));
  }
};
#endif

struct EmulatedTiles {
  static void begin() {}
  static void end() {}

  template <int t>
  static void zero() {
    std::memset(tiles[t], 0, sizeof(tiles[t]));
  }
  template <int t>
  static void load(const void* from, int64_t stride) {
    for (int64_t r = 0; r < 16; ++r) std::memcpy(tiles[t][r], static_cast<const char*>(from) + r * stride, kTileBytes);
  }
  template <int t>
  static void store(void* to, int64_t stride) {
    for (int64_t r = 0; r < 16; ++r) std::memcpy(static_cast<char*>(to) + r * stride, tiles[t][r], kTileBytes);
  }
  template <int c, int a, int b>
  static void multiply_add() {
    for (int i = 0; i < 16; ++i)
      for (int j = 0; j < 16; ++j) {
        float sum = 0;
        std::memcpy(&sum, tiles[c][i] + 4 * j, 4);
        for (int k = 0; k < 32; ++k) sum += number(tiles[a][i] + 2 * k) * number(tiles[b][k / 2] + 4 * j + k % 2 * 2);
        std::memcpy(tiles[c][i] + 4 * j, &sum, 4);
      }
  }

 private:
  static float number(const unsigned char* bfloat16) {
    unsigned char bytes[4] = {0, 0, bfloat16[0], bfloat16[1]};
    float x = 0;
    std::memcpy(&x, bytes, 4);
    return x;
  }
  static inline thread_local unsigned char tiles[8][16][kTileBytes];
};

}  // namespace
}  // namespace attn::cpu
