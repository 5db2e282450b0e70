// Finds protocols by their names.
#include "harness/worker/protocols/protocol.h"

#include <c10/util/Exception.h>

namespace attnbench {

const MeasuringProtocol& find_protocol(const std::string& name) {
  const auto id = attn::parse_protocol(name);
  for (const auto* protocol : {&forward_protocol(), &forward_backward_protocol(), &prefill_protocol(), &decode_protocol()})
    if (protocol->id() == id) return *protocol;
  TORCH_CHECK(false, "the worker has no measuring protocol '", name, "'");
}

}  // namespace attnbench
