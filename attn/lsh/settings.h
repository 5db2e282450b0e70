// The settings of an LSH method: its options, with defaults filled in that depend on the profile.
#pragma once

#include <cstdint>
#include <string>

#include "attn/lsh/lsh_attention.h"

namespace attn {

struct LshSettings {
  int64_t rounds;
  std::string profile;  // kTrax or kFastTransformers
  int64_t chunk;        // positions in a chunk, at least 1
  int64_t buckets;      // even; 0 for the profile's default
  uint64_t seed;        // for draw_rotations()

  bool trax() const { return profile == kTrax; }
  // The number of buckets for a sequence of `length` positions.
  int64_t buckets_for(int64_t length) const {
    if (buckets > 0) return buckets;
    return trax() ? 2 * ((length + chunk - 1) / chunk) : 64;
  }
};

}  // namespace attn
