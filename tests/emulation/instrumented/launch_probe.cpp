// Prints which kernels calls would launch on an H100, and how many bytes they read and write by the formulas of traffic.h.
// Nothing is computed: the host side runs under the emulation, but the blocks of the kernels do not.
//
//   cuda_launch_probe METHOD DTYPE PASS HEADS LENGTH …      PASS is forward or forward_backward; more calls may follow
//
// Heads have 64 columns, and the calls are causal. Each call is a line of JSON. The backward pass of LSH attention cannot be
// probed, because its host side checks the order of positions, which no kernel has computed.
#include <ATen/ATen.h>

#include <iostream>
#include <map>
#include <vector>

#include "attn/linear/cuda/traffic.h"
#include "attn/lsh/cuda/traffic.h"
#include "attn/registry.h"
#include "harness/schema/json.h"
#include "harness/worker/call.h"
#include "harness/worker/protocols/protocol.h"
#include "tests/emulation/instrumented/access.h"

namespace attn {
namespace {

constexpr int64_t kMultiprocessors = 132, kL2Bytes = 50 << 20, kDim = 64, kLshChunk = 64, kLshBuckets = 64;

class LaunchRecorder final : public emulation::Observer {
 public:
  void launch_begins(const emulation::Launch& launch) override { launches.push_back(launch); }
  bool runs_blocks() const override { return false; }
  std::vector<emulation::Launch> launches;
};

double traffic(const std::string& method, const std::string& protocol, int64_t heads, int64_t length, int64_t element_bytes,
               const std::vector<emulation::Launch>& launches) {
  int64_t blocks = 0;
  for (const auto& launch : launches)
    if (emulation::kernel_name(launch.kernel).starts_with("forward<")) blocks += launch.grid.x;
  const auto bytes = [&](cuda::Pass pass) {
    if (method.starts_with("lsh"))
      return cuda::lsh_traffic({.heads = heads,
                                .length = length,
                                .rounds = 1,
                                .chunk = kLshChunk,
                                .columns = kLshBuckets / 2,
                                .head_dim = kDim,
                                .value_dim = kDim,
                                .element_bytes = element_bytes,
                                .tile_rows = 64},
                               pass);
    return cuda::linear_memory_bytes({.heads = heads,
                                      .query_len = length,
                                      .key_len = length,
                                      .head_dim = kDim,
                                      .value_dim = kDim,
                                      .tile_dim = kDim,
                                      .element_bytes = element_bytes,
                                      .causal = true,
                                      .splits = blocks / heads},
                                     pass);
  };
  return bytes(cuda::Pass::forward) + (protocol == "forward" ? 0 : bytes(cuda::Pass::backward));
}

void probe(const std::string& name, const std::string& dtype, const std::string& protocol, int64_t heads, int64_t length) {
  const auto type = dtype == "bfloat16" ? at::kBFloat16 : at::kFloat;
  const std::string spec = name == "lsh" ? "lsh:rounds=1,chunk=" + std::to_string(kLshChunk) +
                                               ",buckets=" + std::to_string(kLshBuckets) + ",implementation=cuda"
                                         : name + ":implementation=cuda";
  // All rows are the same memory.
  const auto rows = [&](bool gradient) {
    return at::zeros({1, 1, 1, kDim}, type).expand({1, heads, length, kDim}).detach().set_requires_grad(gradient);
  };
  const bool backward = protocol != "forward";
  attnbench::CallInputs inputs;
  inputs.q = rows(backward);
  inputs.k = rows(backward);
  inputs.v = rows(backward);
  inputs.mask.causal = true;
  if (backward) inputs.grad_output = rows(false);
  const auto method = make_method(spec);
  LaunchRecorder recorder;
  emulation::set_observer(&recorder);
  attnbench::find_protocol(protocol).call(*method, inputs);
  emulation::set_observer(nullptr);
  attnbench::Json line{{"method", name}, {"dtype", dtype}, {"protocol", protocol}, {"heads", heads}, {"length", length}};
  line["bytes"] = traffic(name, protocol, heads, length, int64_t(c10::elementSize(type)), recorder.launches);
  for (const auto& launch : recorder.launches)
    line["launches"].push_back({{"kernel", emulation::kernel_name(launch.kernel)},
                                {"blocks", launch.grid.x},
                                {"threads", launch.block.x},
                                {"shared_bytes", launch.shared_bytes},
                                {"begins_early", launch.begins_early}});
  std::cout << line.dump() << std::endl;
}

}  // namespace
}  // namespace attn

int main(int count, char** arguments) {
  if (count < 6 || count % 5 != 1) {
    std::cerr << "usage: cuda_launch_probe METHOD DTYPE PASS HEADS LENGTH …\n";
    return 2;
  }
  attn::emulation::set_multiprocessors(attn::kMultiprocessors);
  attn::emulation::set_l2_bytes(attn::kL2Bytes);
  for (int i = 1; i + 4 < count; i += 5)
    attn::probe(arguments[i], arguments[i + 1], arguments[i + 2], std::stoll(arguments[i + 3]), std::stoll(arguments[i + 4]));
}
