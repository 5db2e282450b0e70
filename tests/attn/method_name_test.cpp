// Tests of where the name of a method ends in a text with options.
#include "attn/method_name.h"

#include <gtest/gtest.h>

namespace attn {
namespace {

TEST(MethodName, EndsBeforeTheOptions) {
  EXPECT_EQ(method_name("linear"), "linear");
  EXPECT_EQ(method_name("linear-chunked:chunk=256"), "linear-chunked");
  EXPECT_EQ(method_options("linear-chunked:chunk=256,x=1"), "chunk=256,x=1");
  EXPECT_EQ(method_name("kernels/mine.py:attention:window=64"), "kernels/mine.py:attention");
  EXPECT_EQ(method_options("kernels/mine.py:attention:window=64"), "window=64");
  EXPECT_EQ(method_name("mine.py"), "mine.py");
  EXPECT_EQ(method_name("other:file=x.py:f"), "other");
  EXPECT_EQ(method_name("other:file=x.py"), "other");
}

TEST(MethodName, FoldersOfAPythonFileMayHaveColonsInTheirNames) {
  EXPECT_EQ(method_name("run-2026-11-26T00:34/mine.py:f:window=64"), "run-2026-11-26T00:34/mine.py:f");
  EXPECT_EQ(method_options("run-2026-11-26T00:34/mine.py:f:window=64"), "window=64");
  EXPECT_EQ(method_name("/a:b/c=d:e/mine.py:f"), "/a:b/c=d:e/mine.py:f");
  EXPECT_EQ(method_name("a:b/mine.py"), "a:b/mine.py");
  const auto [file, function] = split_python_name("a:b/mine.py:f");
  EXPECT_EQ(file, "a:b/mine.py");
  EXPECT_EQ(function, "f");
}

}  // namespace
}  // namespace attn
