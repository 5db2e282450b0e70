// Tests of the digest of results: which differences it shows.
#include "harness/worker/checks/digest.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <set>

namespace attnbench {
namespace {

TEST(Digest, IsTheSameForTheSameBitsInOtherMemory) {
  const auto x = at::randn({2, 3, 5, 7});
  EXPECT_EQ(digest_of({x}), digest_of({x.clone()}));
  const auto transposed = x.transpose(1, 2);
  EXPECT_EQ(digest_of({transposed}), digest_of({transposed.contiguous()}));
  EXPECT_EQ(digest_of({x}).size(), 16);
}

TEST(Digest, DiffersForOtherEntriesOrdersShapesDtypesAndTensors) {
  const auto x = at::arange(1, 12, at::kFloat).view({1, 1, 1, 11});  // whose last word has four bytes
  std::set<std::string> digests{digest_of({x})};
  const auto is_new = [&](const Results& results) { return digests.insert(digest_of(results)).second; };
  for (const int64_t at : {0, 5, 10}) {
    auto changed = x.clone();
    changed.view(-1)[at] = at::nextafter(changed.view(-1)[at], at::scalar_tensor(100));
    EXPECT_TRUE(is_new({changed})) << at;
  }
  EXPECT_TRUE(is_new({x.flip(-1)}));
  EXPECT_TRUE(is_new({x.view({1, 1, 11, 1})}));
  EXPECT_TRUE(is_new({x.to(at::kDouble)}));
  EXPECT_TRUE(is_new({-at::zeros_like(x)}));
  EXPECT_TRUE(is_new({at::zeros_like(x)}));
  Results of_q{x}, of_k{x};
  of_q.gradients.q = of_k.gradients.k = x;
  EXPECT_TRUE(is_new(of_q));
  EXPECT_TRUE(is_new(of_k));
}

}  // namespace
}  // namespace attnbench
