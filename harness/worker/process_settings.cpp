// Reads the settings of PyTorch and of this process, and restores those that a method changed.
#include "harness/worker/process_settings.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/InferenceMode.h>
#ifdef __SSE2__
#include <immintrin.h>
#endif

#include <array>
#include <tuple>

#include "attn/problem.h"
#include "harness/machine/machine.h"
#include "harness/worker/cpu/threads.h"

namespace attnbench {
namespace {

using at::Float32Backend, at::Float32Op, at::Float32Precision;

// The settings of the precision of float32 in matrix products, with their names in PyTorch.
constexpr std::array<std::tuple<const char*, Float32Backend, Float32Op>, 3> kPrecisions = {
    {{"fp32_precision", Float32Backend::GENERIC, Float32Op::ALL},
     {"mkldnn.matmul.fp32_precision", Float32Backend::MKLDNN, Float32Op::MATMUL},
     {"cuda.matmul.fp32_precision", Float32Backend::CUDA, Float32Op::MATMUL}}};

std::string text_of(Float32Precision precision) {
  switch (precision) {
    case Float32Precision::IEEE: return "ieee";
    case Float32Precision::TF32: return "tf32";
    case Float32Precision::BF16: return "bf16";
    default: return "none";
  }
}

// Whether the processor replaces results that are too small for a normal number by zero in this thread.
bool flushes_denormals() {
#ifdef __SSE2__
  constexpr unsigned kFlushToZero = 0x8000;
  return (_mm_getcsr() & kFlushToZero) != 0;
#else
  return false;
#endif
}

std::string joined(const std::vector<int>& numbers) {
  std::string text;
  for (const int number : numbers) text += (text.empty() ? "" : " ") + std::to_string(number);
  return text;
}

std::string yes_or_no(bool value) { return value ? "yes" : "no"; }

}  // namespace

std::string float32_matmul_precision() {
  try {
    switch (at::globalContext().float32MatmulPrecision()) {
      case at::Float32MatmulPrecision::HIGHEST: return "highest";
      case at::Float32MatmulPrecision::HIGH: return "high";
      default: return "medium";
    }
  } catch (const c10::Error&) {  // The values of the older and the newer names contradict each other.
    return "";
  }
}

ProcessSettings ProcessSettings::now() {
  ProcessSettings settings;
  const auto& context = at::globalContext();
  settings.threads_ = at::get_num_threads();
  settings.matmul_precision_ = float32_matmul_precision();
  for (const auto& [name, backend, op] : kPrecisions) settings.precisions_.push_back(context.float32Precision(backend, op));
  settings.onednn_ = context.userEnabledMkldnn();
  settings.deterministic_ = context.deterministicAlgorithms();
  settings.only_warns_ = context.deterministicAlgorithmsWarnOnly();
  settings.gradients_ = at::GradMode::is_enabled();
  settings.inference_ = c10::InferenceMode::is_enabled();
  settings.autocast_ = at::autocast::is_autocast_enabled(at::kCPU);
  settings.flushes_denormals_ = flushes_denormals();
  settings.default_dtype_ = c10::get_default_dtype_as_scalartype();
  settings.processors_ = available_processor_numbers();
  return settings;
}

std::vector<std::pair<std::string, std::string>> ProcessSettings::in_words() const {
  std::vector<std::pair<std::string, std::string>> words = {{"threads", std::to_string(threads_)},
                                                            {"float32_matmul_precision", matmul_precision_}};
  for (size_t i = 0; i < kPrecisions.size(); ++i) words.emplace_back(std::get<0>(kPrecisions[i]), text_of(precisions_[i]));
  words.emplace_back("use of oneDNN", yes_or_no(onednn_));
  words.emplace_back("deterministic algorithms", deterministic_ && only_warns_ ? "with warnings" : yes_or_no(deterministic_));
  words.emplace_back("gradients", yes_or_no(gradients_));
  words.emplace_back("inference mode", yes_or_no(inference_));
  words.emplace_back("autocast", yes_or_no(autocast_));
  words.emplace_back("flushing of denormal numbers", yes_or_no(flushes_denormals_));
  words.emplace_back("default dtype", attn::dtype_name(default_dtype_));
  words.emplace_back("processors of the thread", joined(processors_));
  return words;
}

std::string ProcessSettings::changes(const ProcessSettings& later) const {
  const auto before = in_words(), after = later.in_words();
  std::string text;
  for (size_t i = 0; i < before.size(); ++i)
    if (before[i].second != after[i].second)
      text += (text.empty() ? "" : ", ") + before[i].first + " from " + before[i].second + " to " + after[i].second;
  return text;
}

ProcessSettings ProcessSettings::with_processors_of(const ProcessSettings& other) const {
  auto settings = *this;
  settings.processors_ = other.processors_;
  return settings;
}

void ProcessSettings::restore() const {
  auto& context = at::globalContext();
  const auto now = ProcessSettings::now();
  if (now.threads_ != threads_) at::set_num_threads(threads_);
  if (now.matmul_precision_ != matmul_precision_ && !matmul_precision_.empty())
    context.setFloat32MatmulPrecision(matmul_precision_);
  for (size_t i = 0; i < kPrecisions.size(); ++i)
    if (ProcessSettings::now().precisions_[i] != precisions_[i])
      context.setFloat32Precision(std::get<1>(kPrecisions[i]), std::get<2>(kPrecisions[i]), precisions_[i]);
  context.setUserEnabledMkldnn(onednn_);
  context.setDeterministicAlgorithms(deterministic_, only_warns_);
  if (now.inference_ != inference_) {
    c10::AutogradState::set_tls_state(autograd_);
    c10::impl::_force_tls_local_dispatch_key_set(dispatch_keys_);
  }
  at::GradMode::set_enabled(gradients_);
  at::autocast::set_autocast_enabled(at::kCPU, autocast_);
  at::Context::setFlushDenormal(flushes_denormals_);
  c10::set_default_dtype(c10::scalarTypeToTypeMeta(default_dtype_));
  if (now.processors_ != processors_) run_on(processors_);
}

}  // namespace attnbench
