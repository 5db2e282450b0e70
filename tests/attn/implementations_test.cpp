// Tests of how operators and methods find their implementation: which function answers for a device, which requests are refused,
// and that a method searches once per problem.
#include "attn/implementations.h"

#include <gtest/gtest.h>

#include "tests/support/errors_of.h"

namespace attn {
namespace {

using attnbench::message_of;

struct Fake {
  std::string name;
};
using Registry = ImplementationRegistry<Fake, ImplementationRequest>;

int searches = 0;

const Fake* find_on_cpu(const ImplementationRequest& request) {
  ++searches;
  static const Fake best{"best"};
  if (request.dtype == at::kHalf) return nullptr;
  TORCH_CHECK_VALUE(request.wanted == "auto" || request.wanted == "best", "fake_attention: no kernel '", request.wanted, "'");
  return &best;
}

const Fake* find_on_gpu(const ImplementationRequest&) {
  static const Fake cuda{"cuda"};
  return &cuda;
}

ImplementationRequest request(const std::string& wanted, c10::DeviceType device = at::kCPU, at::ScalarType dtype = at::kFloat) {
  return {wanted, dtype, device, 64, 64};
}

TEST(Implementations, ComposedFindsNoImplementation) {
  const Registry registry("fake_attention", find_on_cpu);
  EXPECT_EQ(registry.find(request("composed")), nullptr);
  EXPECT_EQ(registry.find(request("composed", at::kCUDA)), nullptr);
  EXPECT_EQ(registry.find(request("auto"))->name, "best");
}

TEST(Implementations, GpuKernelsNeedTheirLibrary) {
  Registry registry("fake_attention", find_on_cpu);
  EXPECT_EQ(registry.find(request("auto", at::kCUDA)), nullptr);
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { registry.find(request("cuda", at::kCUDA)); }),
                  "fake_attention: kernel 'cuda' on CUDA needs libattn-cuda.so, which is not loaded");
  registry.register_gpu(at::kCUDA, find_on_gpu);
  EXPECT_EQ(registry.find(request("cuda", at::kCUDA))->name, "cuda");
  EXPECT_EQ(registry.find(request("auto"))->name, "best");  // the answer for the CPU is not changed
  EXPECT_CONTAINS(message_of<c10::Error>([&] { registry.register_gpu(at::kCUDA, find_on_gpu); }),
                  "fake_attention: GPU kernels are registered twice");
}

TEST(Implementations, AMethodSearchesOncePerProblem) {
  const Registry registry("fake_attention", find_on_cpu);
  const ImplementationResolver<Registry> resolver(registry);
  searches = 0;
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(resolver.why_unsupported("fake", request("auto")));
    EXPECT_EQ(resolver.find(request("auto"))->name, "best");
  }
  EXPECT_EQ(searches, 1);
  EXPECT_EQ(resolver.find(request("auto", at::kCPU, at::kHalf)), nullptr);
  EXPECT_EQ(searches, 2);
  auto wider = request("auto");
  wider.value_dim = 65;
  EXPECT_EQ(resolver.find(wider)->name, "best");
  EXPECT_EQ(searches, 3);
  wider.gradients = false;  // another implementation may be chosen for the forward pass alone, and on another GPU
  EXPECT_EQ(resolver.find(wider)->name, "best");
  EXPECT_EQ(searches, 4);
  wider.device_index = 1;
  EXPECT_EQ(resolver.find(wider)->name, "best");
  EXPECT_EQ(searches, 5);
}

TEST(Implementations, RefusalsNameTheMethodAndTheReason) {
  const Registry registry("fake_attention", find_on_cpu);
  const ImplementationResolver<Registry> resolver(registry);
  const auto reason = [&](const ImplementationRequest& r) {
    return resolver.why_unsupported("fake:kernel=" + r.wanted, r).value();
  };
  EXPECT_EQ(reason(request("other")), "fake:kernel=other: fake_attention: no kernel 'other'");
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { resolver.find(request("other")); }), "fake_attention: no kernel 'other'");
  EXPECT_EQ(reason(request("cuda")), "fake:kernel=cuda has a kernel for CUDA only");
  EXPECT_EQ(reason(request("best", at::kCUDA)), "fake:kernel=best has a kernel for the CPU only");
  EXPECT_EQ(reason(request("best", at::kCPU, at::kDouble)), "fake:kernel=best has no kernel for float64");
  EXPECT_FALSE(resolver.why_unsupported("fake", request("composed", at::kCUDA)));
}

TEST(Implementations, GpuKernelsRunOnCudaOnly) {
  EXPECT_TRUE(runs_gpu_kernels(at::kCUDA));
  EXPECT_FALSE(runs_gpu_kernels(at::kCPU));
}

}  // namespace
}  // namespace attn
