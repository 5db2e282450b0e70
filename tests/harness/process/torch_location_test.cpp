// Tests of what is checked of another machine's torch, and of where its libraries are looked for.
#include "harness/process/torch_location.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "harness/text/errors.h"
#include "tests/support/errors_of.h"

namespace attnbench {
namespace {

namespace fs = std::filesystem;

const TorchFacts kBuilt{"2.11.0", "13.0", "C++11"};

TEST(TorchLocation, TheVersionMustBeTheSame) {
  EXPECT_EQ(torch_mismatch(kBuilt, kBuilt, true), "");
  EXPECT_EQ(torch_mismatch({"2.12.0", "13.0", "C++11"}, kBuilt, false),
            "found torch 2.12.0, with CUDA 13.0, the ABI C++11; expected torch 2.11.0, with CUDA 13.0, the ABI C++11, which "
            "attnbench was built with");
}

TEST(TorchLocation, TheAbiMustBeTheSameIfItIsKnown) {
  EXPECT_NE(torch_mismatch({"2.11.0", "13.0", "before C++11"}, kBuilt, false), "");
  EXPECT_EQ(torch_mismatch({"2.11.0", "13.0", ""}, kBuilt, true), "");
}

TEST(TorchLocation, CudaCountsByItsMajorVersionAndOnlyForProgramsThatUseIt) {
  EXPECT_EQ(torch_mismatch({"2.11.0", "13.2", "C++11"}, kBuilt, true), "");
  for (const auto* cuda : {"12.8", ""}) {
    const TorchFacts other{"2.11.0", cuda, "C++11"};
    EXPECT_EQ(torch_mismatch(other, kBuilt, false), "");
    const auto said = torch_mismatch(other, kBuilt, true);
    EXPECT_NE(said.find(*cuda ? "with CUDA 12.8" : "without CUDA"), std::string::npos) << said;
  }
}

class TorchFolder : public testing::Test {
 protected:
  TorchFolder() : folder_(fs::path(testing::TempDir()) / "attnbench-torch-location") {
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "torch/lib");
    fs::create_directories(folder_ / "nvidia/cudnn/lib");
    fs::create_directories(folder_ / "nvidia/cu13/lib");
    fs::create_directories(folder_ / "nvidia/headers");
  }
  ~TorchFolder() override { fs::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) { std::ofstream(folder_ / "torch" / name) << text; }
  std::string torch() const { return (folder_ / "torch").string(); }

  fs::path folder_;
};

TEST_F(TorchFolder, SaysItsVersionItsCudaAndItsAbi) {
  write("lib/libc10.so", "\nx_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE");
  write("version.py", "from typing import Optional\n__version__ = '2.11.0+cu130'\ncuda: Optional[str] = '13.0'\n");
  const auto facts = torch_in(torch());
  EXPECT_EQ(facts.version, "2.11.0");
  EXPECT_EQ(facts.cuda, "13.0");
  EXPECT_EQ(facts.abi, "C++11");
  write("version.py", "__version__ = '2.11.0+cpu'\ncuda: Optional[str] = None\nhip = None\n");
  EXPECT_EQ(torch_in(torch()).cuda, "");
  write("version.py", "version = '2.11.0'\n");
  EXPECT_NE(message_of<UsageError>([&] { torch_in(torch()); }).find("it has no line __version__ = "), std::string::npos);
}

TEST_F(TorchFolder, ItsLibrariesAreFoundBeforeOthersAndThoseOfCudaBesideIt) {
  const auto base = fs::canonical(folder_).string();
  const auto own = base + "/torch/lib:" + base + "/nvidia/cu13/lib:" + base + "/nvidia/cudnn/lib";
  EXPECT_EQ(library_path_of(torch(), ""), own);
  EXPECT_EQ(library_path_of(torch(), "/other"), own + ":/other");
}

}  // namespace
}  // namespace attnbench
