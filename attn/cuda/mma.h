// Products of small matrices by one warp on the tensor cores (mma.sync): d [16,8] += a [16,K] · b [K,8], accumulated in float32,
// where K = 16 for 16-bit elements and 8 for TF32. The hardware decides which lane holds which entries. With group = lane / 4 and
// place = lane % 4, a lane holds these four entries (row, column) of d:
//
//   (group, 2·place), (group, 2·place + 1), (group + 8, 2·place), (group + 8, 2·place + 1)
//
// The functions here read the fragments of a and b from shared memory, so that no other file depends on their layout.
//
// Two orders of depth are used. In the natural order, depth k of the product is entry k of a tile's row. Where the rows of a tile
// are the depth, products of TF32 take rows in another order: the depths `place` and `place + 4` of a lane are the rows 2·place
// and 2·place + 1. A product does not depend on the order, as long as both factors have the same. In this one an accumulator is
// a factor as it is, and no two lanes read from the same bank of the shared memory.
#pragma once

#include <type_traits>

#include "attn/cuda/device.h"

namespace attn::cuda {

// A lane's part of d.
struct Accumulator {
  float x[4] = {0, 0, 0, 0};

  // Row and column of x[i] within the 16 × 8 tile.
  __device__ static int row(int i) { return int(threadIdx.x) % kWarp / 4 + (i / 2) * 8; }
  __device__ static int column(int i) { return int(threadIdx.x) % 4 * 2 + i % 2; }
};

// Loads four matrices of 8 × 8 16-bit numbers. Lane l gives the address of row l % 8 of matrix l / 8, a multiple of 16 bytes.
// x[i] is the lane's part of matrix i: entries 2·place and 2·place + 1 of row `group`. All lanes of the warp must call it.
__device__ inline void load_matrices(uint32_t (&x)[4], const void* row) {
#ifdef __CUDA_ARCH__
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(uint32_t(__cvta_generic_to_shared(row)))
               : "memory");
#elif !defined(__CUDACC__)
  const char* all = emulation::exchange(kAllLanes, &row, sizeof row);
  for (int i = 0; i < 4; ++i)
    memcpy(&x[i], emulation::given_by<const char*>(all, unsigned(i * 8 + lane() / 4)) + lane() % 4 * 4, 4);
#endif
}
// The same with transposed matrices: x[i] has entry `group` of the rows 2·place and 2·place + 1.
__device__ inline void load_transposed_matrices(uint32_t (&x)[4], const void* row) {
#ifdef __CUDA_ARCH__
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(uint32_t(__cvta_generic_to_shared(row)))
               : "memory");
#elif !defined(__CUDACC__)
  const char* all = emulation::exchange(kAllLanes, &row, sizeof row);
  for (int i = 0; i < 4; ++i) {
    uint16_t pair[2];
    for (int j = 0; j < 2; ++j)
      memcpy(&pair[j], emulation::given_by<const char*>(all, unsigned(i * 8 + lane() % 4 * 2 + j)) + lane() / 4 * 2, 2);
    memcpy(&x[i], pair, 4);
  }
#endif
}

// Stores a matrix of 16 × 16 16-bit numbers, whose rows begin at multiples of 16 bytes that are `stride` numbers apart. x has the
// lane's part of its four quarters, as load_matrices() loads them: x[i] is of rows i % 2 · 8 and columns i / 2 · 8 and the
// following ones. All lanes of the warp must call it.
template <class E>
__device__ inline void store_matrix(const uint32_t (&x)[4], E* tile, int stride) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};\n" ::"r"(
                   uint32_t(__cvta_generic_to_shared(tile + lane() % 16 * stride + lane() / 16 * 8))),
               "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
               : "memory");
#else
#pragma unroll
  for (int i = 0; i < 4; ++i)
    *reinterpret_cast<uint32_t*>(tile + (lane() / 4 + i % 2 * 8) * stride + i / 2 * 8 + lane() % 4 * 2) = x[i];
#endif
}

// Stores two neighbouring tiles of d, rounded to 16 bits, as 16 rows of a tile in shared memory.
template <class E>
__device__ inline void store_pairs(const Accumulator& left, const Accumulator& right, E* tile, int stride) {
  const uint32_t x[4] = {pair_of<E>(left.x[0], left.x[1]), pair_of<E>(left.x[2], left.x[3]), pair_of<E>(right.x[0], right.x[1]),
                         pair_of<E>(right.x[2], right.x[3])};
  store_matrix(x, tile, stride);
}

// How the numbers of the tiles are converted before they are multiplied.
enum class Precision {
  half_precision,  // 16-bit elements are not converted
  tf32,            // float32 is rounded to TF32, which has 10 bits after the binary point
  tf32_three,      // float32 is split into the sum of two TF32 numbers: three products, with an error of about 2⁻²¹
};

// E is the element type of the tiles in shared memory.
template <class E, Precision kPrecision>
struct Fragments {
  static constexpr int kDepth = sizeof(E) == 2 ? 16 : 8;
  // An entry is the rounded number and, for tf32_three, the remainder.
  static constexpr int kWords = kPrecision == Precision::tf32_three ? 2 : 1;
  static constexpr int kSixteenBytes = 16 / int(sizeof(E));

  struct A {
    uint32_t x[kWords][4];
  };
  struct B {
    uint32_t x[kWords][2];
  };

  // `tile` is 16-byte aligned, and `stride` is the number of entries from one row of it to the next, a multiple of 16 bytes.

  // Loads a, whose entry (r, k) is tile[r·stride + k], in the natural order.
  __device__ static A load_a_of_rows(const E* tile, int stride) {
    const int l = lane();
    uint32_t x[4];
    load_matrices(x, tile + (l % 16) * stride + l / 16 * kSixteenBytes);
    A a;
#pragma unroll
    for (int i = 0; i < 4; ++i) set_word(a.x, i, x[i]);
    return a;
  }
  // The same in the order of the functions that end in _of_columns.
  __device__ static A load_a_of_rows_for_columns(const E* tile, int stride) {
    if constexpr (sizeof(E) == 2) {
      return load_a_of_rows(tile, stride);
    } else {
      struct alignas(8) Two {
        uint32_t x[2];
      };
      A a;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const auto two = *reinterpret_cast<const Two*>(tile + (lane() / 4 + i * 8) * stride + lane() % 4 * 2);
        set_word(a.x, i, two.x[0]), set_word(a.x, 2 + i, two.x[1]);
      }
      return a;
    }
  }
  // Loads the matrices b of two neighbouring tiles of d: entry (k, c) of b[j] is tile[(c + 8·j)·stride + k], in the natural
  // order.
  __device__ static void load_b_of_rows(B (&b)[2], const E* tile, int stride) {
    const int l = lane();
    uint32_t x[4];
    load_matrices(x, tile + (l % 8 + l / 16 * 8) * stride + l / 8 % 2 * kSixteenBytes);
#pragma unroll
    for (int i = 0; i < 4; ++i) set_word(b[i / 2].x, i % 2, x[i]);
  }
  // Loads a, whose entry (r, k) is tile[k·stride + r]; the rows of the tile are the depth.
  __device__ static A load_a_of_columns(const E* tile, int stride) {
    const int l = lane();
    A a;
    if constexpr (sizeof(E) == 2) {
      uint32_t x[4];
      load_transposed_matrices(x, tile + (l % 8 + l / 16 * 8) * stride + l / 8 % 2 * kSixteenBytes);
#pragma unroll
      for (int i = 0; i < 4; ++i) set_word(a.x, i, x[i]);
    } else {
      const E* p = tile + l % 4 * 2 * stride + l / 4;
#pragma unroll
      for (int i = 0; i < 4; ++i) set_word(a.x, i, float_to_bits(p[i / 2 * stride + i % 2 * 8]));
    }
    return a;
  }
  // Loads the matrices b of two neighbouring tiles of d: entry (k, c) of b[j] is tile[k·stride + c + 8·j]; the rows of the tile
  // are the depth.
  __device__ static void load_b_of_columns(B (&b)[2], const E* tile, int stride) {
    const int l = lane();
    if constexpr (sizeof(E) == 2) {
      uint32_t x[4];
      load_transposed_matrices(x, tile + l % 16 * stride + l / 16 * kSixteenBytes);
#pragma unroll
      for (int i = 0; i < 4; ++i) set_word(b[i / 2].x, i % 2, x[i]);
    } else {
      const E* p = tile + l % 4 * 2 * stride + l / 4;
#pragma unroll
      for (int i = 0; i < 4; ++i) set_word(b[i / 2].x, i % 2, float_to_bits(p[i % 2 * stride + i / 2 * 8]));
    }
  }
  // Makes the fragments of a [16,16] from two neighbouring tiles of an accumulator; their columns are the depth, in the order of
  // the functions that end in _of_columns.
  static constexpr int kDepthsOfPair = 16 / kDepth;
  __device__ static void from_accumulators(A (&a)[kDepthsOfPair], const Accumulator (&d)[2]) {
    if constexpr (sizeof(E) == 2) {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[0].x[0][i] = pair_of<E>(d[i / 2].x[i % 2 * 2], d[i / 2].x[i % 2 * 2 + 1]);
    } else {
#pragma unroll
      for (int j = 0; j < kDepthsOfPair; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) set_word(a[j].x, i, float_to_bits(round_to_tile(d[j].x[i % 2 * 2 + i / 2])));
    }
  }
  // Makes b from the words that hold its entries: for 16-bit numbers, entries (2·place, group), (2·place + 1, group) and (2·place
  // + 8, group), (2·place + 9, group); otherwise (place, group) and (place + 4, group).
  __device__ static B from_words(uint32_t first, uint32_t second) {
    B b;
    set_word(b.x, 0, first), set_word(b.x, 1, second);
    return b;
  }

  // Rounds a number to what a tile holds of it, so that it need not be rounded again where it becomes a factor: TF32 for the
  // precision `tf32`.
  __device__ static float round_to_tile(float x) {
    if constexpr (kPrecision == Precision::tf32) return bits_to_float(to_tf32(x));
    else return x;
  }

  __device__ static void multiply_add(Accumulator& d, const A& a, const B& b) {
    if constexpr (kPrecision == Precision::tf32_three) {
      product(d, a.x[1], b.x[0]);
      product(d, a.x[0], b.x[1]);
    }
    product(d, a.x[0], b.x[0]);
  }

 private:
  // Sets an entry from a word of a tile, whose numbers are rounded already.
  template <int kCount>
  __device__ static void set_word(uint32_t (&x)[kWords][kCount], int i, uint32_t word) {
    if constexpr (kWords == 2) {
      // The first number keeps the bits that TF32 has. The remainder is exact; the tensor cores do not read its last 13 bits.
      x[0][i] = word & 0xffffe000;
      x[1][i] = float_to_bits(bits_to_float(word) - bits_to_float(x[0][i]));
    } else {
      x[0][i] = word;
    }
  }
  __device__ static uint32_t to_tf32(float x) {
#ifdef __CUDA_ARCH__
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;\n" : "=r"(bits) : "f"(x));
    return bits;
#else
    const uint32_t bits = float_to_bits(x);
    if ((bits & 0x7f800000) == 0x7f800000) return bits;
    return (bits + 0x1000) & 0xffffe000;
#endif
  }

  __device__ static void product(Accumulator& d, const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#ifdef __CUDA_ARCH__
    if constexpr (sizeof(E) == 4)
      asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
                   : "+f"(d.x[0]), "+f"(d.x[1]), "+f"(d.x[2]), "+f"(d.x[3])
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else if constexpr (std::is_same<E, Half>::value)
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
                   : "+f"(d.x[0]), "+f"(d.x[1]), "+f"(d.x[2]), "+f"(d.x[3])
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
                   : "+f"(d.x[0]), "+f"(d.x[1]), "+f"(d.x[2]), "+f"(d.x[3])
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#elif !defined(__CUDACC__)
    // In the emulation each lane receives the fragments of all lanes and computes its own four entries of d.
    struct Given {
      uint32_t a[4], b[2];
    } mine;
    memcpy(mine.a, a, sizeof mine.a), memcpy(mine.b, b, sizeof mine.b);
    const char* all = emulation::exchange(kAllLanes, &mine, sizeof mine);
    const auto word = [&](unsigned lane) -> const Given& { return emulation::given_by<Given>(all, lane); };
    for (int i = 0; i < 4; ++i) {
      const int r = Accumulator::row(i), c = Accumulator::column(i);
      for (int k = 0; k < kDepth; ++k) {
        const int half = kDepth / 2, per_lane = sizeof(E) == 2 ? 2 : 1;
        const auto holder = [&](int line) { return unsigned(line % 8 * 4 + k % half / per_lane); };
        const uint32_t a_word = word(holder(r)).a[r / 8 + 2 * (k / half)], b_word = word(holder(c)).b[k / half];
        d.x[i] += entry(a_word, k) * entry(b_word, k);
      }
    }
#endif
  }
  __device__ static float entry(uint32_t word, int k) {
    if constexpr (sizeof(E) == 4) return bits_to_float(word & 0xffffe000);  // as the tensor cores do
    else return to_float(E{uint16_t(k % 2 == 0 ? word : word >> 16)});
  }
};

}  // namespace attn::cuda
