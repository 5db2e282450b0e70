// A list of feature maps that are types, and the choice of one at run time.
#pragma once

#include "attn/linear/feature_map_kind.h"

namespace attn::cpu {
namespace {  // each instruction set needs its own copy, see simd.h

// Each of the types has a constant kKind, the FeatureMapKind that it computes.
template <class... Maps>
struct FeatureMapList {};

// Calls work(Map()) for the map of the list with this kind. Callers must exclude kinds that no map has, see
// computes_feature_map().
template <class... Maps, class Work>
void with_feature_map(FeatureMapList<Maps...>, FeatureMapKind kind, const Work& work) {
  const bool found = ((Maps::kKind == kind && (work(Maps()), true)) || ...);
  if (!found) __builtin_trap();
}

}  // namespace
}  // namespace attn::cpu
