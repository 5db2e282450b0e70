// The registry of implementations of linear attention, and why one cannot compute a feature map.
#include "attn/linear/implementation.h"

namespace attn {

std::string why_not_map(const LinearRequest& request, bool computes_map) {
  const auto of_map = std::string("feature map '") + feature_map_name(request.map) + "'";
  if (!computes_map) return "does not compute " + of_map;
  if (request.update != update_for(request.map))
    return std::string("does not compute the update '") + update_name(request.update) + "' with " + of_map;
  return "";
}

LinearRegistry& linear_implementations() {
  static LinearRegistry registry("linear_attention");
  return registry;
}

}  // namespace attn
