// Fills the columns of the environment, and describes each method with its options and orders.
#include "harness/worker/environment.h"

#include <ATen/Version.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "attn/cpu/instruction_set.h"
#include "attn/registry.h"
#include "harness/machine/machine.h"
#include "harness/schema/build_info.h"
#include "harness/worker/process_settings.h"

namespace attnbench {
namespace {

Json option_value(const attn::OptionValue& value) {
  return std::visit([](const auto& v) { return Json(v); }, value);
}

// The implementations among `choices` whose CPU kernels this build has.
Json built_kernels(const std::vector<std::string>& choices) {
  auto sets = attn::cpu::built_instruction_sets();
  if (attn::cpu::is_built(attn::cpu::InstructionSet::amx)) sets.push_back(attn::cpu::InstructionSet::amx);
  auto names = Json::array();
  for (const auto set : sets)
    if (const std::string name = attn::cpu::name_of(set); std::find(choices.begin(), choices.end(), name) != choices.end())
      names.push_back(name);
  return names;
}

// The two lengths between which the orders of decoding are computed, the longest that the project's sweeps measure.
constexpr int64_t kShorter = 16384, kLonger = 65536;

// The slowest-growing order that grows at least as much from kShorter to kLonger as this quantity does.
std::string order_of_growth(double at_shorter, double at_longer) {
  constexpr double kRounding = 1.001;  // tolerates terms that do not matter at these lengths, such as the one token of a step
  const double growth = at_longer / at_shorter / kRounding, factor = double(kLonger) / double(kShorter);
  if (growth <= 1) return "O(1)";
  if (growth <= factor) return "O(N)";
  if (growth <= factor * std::log(double(kLonger)) / std::log(double(kShorter))) return "O(N log N)";
  if (growth <= factor * factor) return "O(N²)";
  return "";
}

struct DecodeOrders {
  std::string time, memory;
};
// How the cost of one step grows with the number of tokens before it, by the method's own formulas. Empty for a method that does
// not decode. The time is that of the faster-growing of operations and memory traffic.
DecodeOrders decode_orders(const attn::AttentionMethod& method) {
  if (!method.capabilities().decoding) return {};
  const auto cost_at = [&](int64_t length) {
    attn::Problem problem;
    problem.query_len = problem.key_len = length;
    problem.causal = true;
    return method.cost(problem, attn::Protocol::decode);
  };
  const auto shorter = cost_at(kShorter), longer = cost_at(kLonger);
  const bool traffic_grows_faster = longer.min_bytes / shorter.min_bytes > longer.flops / shorter.flops;
  return {
      traffic_grows_faster ? order_of_growth(shorter.min_bytes, longer.min_bytes) : order_of_growth(shorter.flops, longer.flops),
      order_of_growth(shorter.peak_bytes, longer.peak_bytes)};
}

// The environment variables that change how PyTorch, OpenMP and oneMKL compute or how memory is allocated, as "NAME=value
// NAME=value".
std::string computing_variables() {
  constexpr std::string_view kPrefixes[] = {
      "OMP_",     "MKL_",        "KMP_",  "GOMP_",   "OPENBLAS_",   "ATEN_",           "TORCH_",
      "PYTORCH_", "NVIDIA_TF32", "DNNL_", "ONEDNN_", "LD_PRELOAD=", "GLIBC_TUNABLES=", "MALLOC_"};
  // Exceptions: the driver sets the first for workers that take turns, and the others change no computation.
  constexpr std::string_view kOthers[] = {"GOMP_SPINCOUNT=", "TORCH_HOME=", "TORCH_EXTENSIONS_DIR=", "TORCH_LOGS="};
  std::vector<std::string> found;
  for (auto** variable = environ; *variable; ++variable) {
    const std::string_view text = *variable;
    const auto begins = [&](std::string_view prefix) { return text.starts_with(prefix); };
    if (std::any_of(std::begin(kPrefixes), std::end(kPrefixes), begins) &&
        std::none_of(std::begin(kOthers), std::end(kOthers), begins))
      found.emplace_back(text);
  }
  std::sort(found.begin(), found.end());
  std::string all;
  for (const auto& text : found) all += (all.empty() ? "" : " ") + text;
  return all;
}

}  // namespace

Record environment() {
  Record record;
  record.set("revision", kBuildInfo.revision);
  record.set("dirty", kBuildInfo.dirty);
  if (kBuildInfo.dirty) record.set("changes_digest", kBuildInfo.changes);
  record.set("build", kBuildInfo.build);
  record.set("compiler", kBuildInfo.compiler);
  record.set("compiler_flags", kBuildInfo.compiler_flags);
  record.set("torch_version", TORCH_VERSION);
  record.set("cpu_model", cpu_model());
  const auto processors = processors_for_this_process();
  record.set("processors", processors.count);
  record.set("processors_bound", processors.bound);
  record.set("memory_bound", memory_for_this_process().bound);
  record.set("instruction_set", at::get_cpu_capability());
  if (const auto variables = computing_variables(); !variables.empty()) record.set("variables", variables);
  std::ifstream pages("/sys/kernel/mm/transparent_hugepage/enabled");  // "always [madvise] never"
  for (std::string word; pages >> word;)
    if (word.front() == '[') record.set("huge_pages", word.substr(1, word.size() - 2));
  std::ifstream governor("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  if (std::string name; governor >> name) record.set("cpu_governor", name);
  record.set("float32_matmul_precision", float32_matmul_precision());
  return record;
}

Json describe_methods() {
  auto all = Json::array();
  for (const auto* entry : attn::methods()) {
    const auto method = attn::make_method(entry->name);
    const auto can = method->capabilities();
    Json capabilities = {{"full", can.full},
                         {"causal", can.causal},
                         {"cross_attention", can.cross_attention},
                         {"causal_cross_attention", can.causal_cross_attention},
                         {"shared_heads", can.shared_heads != attn::SharedHeads::no},
                         {"key_lengths", can.key_lengths},
                         {"patterns", can.patterns},
                         {"packed", can.packed},
                         {"length_multiple", can.length_multiple},
                         {"gradients", can.gradients},
                         {"decoding", can.decoding},
                         {"learned", can.learned},
                         {"nan_reaches_its_rows_only", can.nan_reaches_its_rows_only},
                         {"inputs", Json::array()},
                         {"dtypes", Json::array()},
                         {"devices", Json::array()}};
    for (const auto& spec : can.inputs) capabilities["inputs"].push_back(spec.name);
    for (const auto dtype : can.dtypes) capabilities["dtypes"].push_back(attn::dtype_name(dtype));
    for (const auto device : can.devices) capabilities["devices"].push_back(c10::DeviceTypeName(device, /*lower_case=*/true));
    auto options = Json::array();
    auto kernels = Json::array();
    for (const auto& option : entry->options) {
      if (option.name == "implementation") kernels = built_kernels(option.choices);
      const bool is_integer = std::holds_alternative<int64_t>(option.default_value);
      options.push_back({{"name", option.name},
                         {"type", attn::option_type(option.default_value)},
                         {"default", option_value(option.default_value)},
                         {"choices", option.choices},
                         {"min", is_integer ? Json(option.min) : Json()},
                         {"max", is_integer ? Json(option.max) : Json()},
                         {"description", option.description}});
    }
    auto diagnostics = Json::array();
    for (const auto& spec : method->diagnostic_specs())
      diagnostics.push_back({{"name", spec.name}, {"unit", spec.unit}, {"description", spec.description}});
    const auto decoding = decode_orders(*method);
    all.push_back({{"name", entry->name},
                   {"description", entry->description},
                   {"time_order", entry->time_order},
                   {"memory_order", entry->memory_order},
                   {"decode_time_order", decoding.time},
                   {"decode_memory_order", decoding.memory},
                   {"capabilities", capabilities},
                   {"options", options},
                   {"built_kernels", kernels},
                   {"diagnostics", diagnostics}});
  }
  return all;
}

}  // namespace attnbench
