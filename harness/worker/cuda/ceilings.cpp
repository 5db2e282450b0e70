// Times matrix products by cuBLAS beside the kernels of ceilings.cu, and answers the worker.
#include "harness/worker/cuda/ceilings.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include <algorithm>
#include <string>

#include "harness/worker/device.h"

namespace attnbench {
namespace {

constexpr int kRuns = 8;

// The rate at which cuBLAS multiplies two square matrices, on the tensor cores if they support the dtype.
// The entries are random, because a GPU needs less power for zeros and then runs at higher clocks.
double matmul_gflop_s(Device& device, at::ScalarType dtype) {
  const int64_t size = dtype == at::kDouble ? 4096 : 8192;
  const auto options = at::TensorOptions(dtype).device(device.torch_device());
  const auto a = at::randn({size, size}, options), b = at::randn({size, size}, options);
  auto product = at::mm(a, b);
  const auto stopwatch = device.make_sample_stopwatch();
  double best_s = 1e300;
  for (int run = 0; run < kRuns; ++run) best_s = std::min(best_s, stopwatch([&] { at::mm_out(product, a, b); }).s);
  return 2.0 * double(size) * double(size) * double(size) / best_s / 1e9;
}

// Lets cuBLAS use TF32 as long as the object exists.
class AllowTf32 {
 public:
  AllowTf32() : before_(at::globalContext().allowTF32CuBLAS()) { at::globalContext().setAllowTF32CuBLAS(true); }
  ~AllowTf32() { at::globalContext().setAllowTF32CuBLAS(before_); }
  AllowTf32(const AllowTf32&) = delete;
  AllowTf32& operator=(const AllowTf32&) = delete;

 private:
  bool before_;
};

}  // namespace
}  // namespace attnbench

const char* attnbench_gpu_ceilings(attnbench::GpuCeilings* ceilings) {
  using attnbench::matmul_gflop_s;
  const char* why = nullptr;
  auto* const device = attnbench_gpu_device(&why);
  if (!device) return why;
  static std::string problem;
  try {
    const auto stopwatch = device->make_sample_stopwatch();
    const auto time = [&](const std::function<void()>& launch) { return stopwatch(launch).s; };
    if (const char* const failed = attnbench::measure_copy_and_fma(*ceilings, time)) return failed;
    ceilings->matmul_float64_gflop_s = matmul_gflop_s(*device, at::kDouble);
    ceilings->matmul_float16_gflop_s = matmul_gflop_s(*device, at::kHalf);
    ceilings->matmul_bfloat16_gflop_s = matmul_gflop_s(*device, at::kBFloat16);
    const attnbench::AllowTf32 tf32;
    ceilings->matmul_float32_gflop_s = matmul_gflop_s(*device, at::kFloat);
  } catch (const std::exception& error) {
    problem = error.what();
    return problem.c_str();
  }
  return nullptr;
}
