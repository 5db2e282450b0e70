// attn/cpu/instruction_set.cpp as a build compiles it that has portable kernels alone.
#include "attn/cpu/instruction_set.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/errors_of.h"

namespace attn::cpu {
namespace {

TEST(BuildWithPortableKernels, HasNoOtherOnes) {
  EXPECT_EQ(built_instruction_sets(), std::vector{InstructionSet::portable});
  EXPECT_EQ(available_instruction_sets(), std::vector{InstructionSet::portable});
  EXPECT_EQ(choose_instruction_set("auto"), InstructionSet::portable);
  EXPECT_TRUE(is_built(InstructionSet::portable));
  EXPECT_TRUE(is_available(InstructionSet::portable));
  EXPECT_FALSE(is_built(InstructionSet::amx));
  EXPECT_FALSE(is_available(InstructionSet::amx));
  EXPECT_FALSE(is_built(InstructionSet::avx2));
  EXPECT_FALSE(is_available(InstructionSet::avx2));
}

TEST(BuildWithPortableKernels, SaysHowToBuildTheOnesThatThisProcessorCanRun) {
  if (processor_instruction_sets().size() == 1) GTEST_SKIP() << "this processor has no vector instructions that kernels use";
  for (const auto set : processor_instruction_sets()) {
    if (set == InstructionSet::portable) continue;
    const std::string name = name_of(set);
    EXPECT_EQ(why_unavailable(set), "is not in this build; `make build` adds the kernels of all instruction sets");
    EXPECT_CONTAINS(
        attnbench::message_of<c10::ValueError>([&] { choose_instruction_set(name); }),
        "kernel '" + name + "' is not in this build, which has portable; `make build` adds the kernels of all instruction sets");
  }
}

}  // namespace
}  // namespace attn::cpu
