// The settings of an LSH method: its options with their defaults resolved.
#pragma once

#include <cstdint>
#include <string>

#include "attn/lsh/lsh_attention.h"

namespace attn {

struct LshSettings {
  int64_t rounds;
  std::string profile;  // kTrax or kFastTransformers
  int64_t chunk;        // positions in a chunk
  int64_t buckets;      // 0: the profile's own number
  uint64_t seed;        // of the rotations

  bool trax() const { return profile == kTrax; }
  // The number of buckets for a sequence of this length.
  int64_t buckets_for(int64_t length) const {
    if (buckets > 0) return buckets;
    return trax() ? 2 * ((length + chunk - 1) / chunk) : 64;
  }
};

}  // namespace attn
