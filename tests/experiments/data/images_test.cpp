// Tests of folders of images, and of the batches that are made from them.
#include "experiments/data/images.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "experiments/data/idx.h"
#include "tests/experiments/data/data_files.h"

namespace experiments {
namespace {

using attnbench::message_of;
using attnbench::TempFolder;

// Images [count, rows, columns] of the bytes first, first + 1 and so on.
at::Tensor counted(int64_t count, int64_t rows, int64_t columns, int64_t first = 0) {
  return (at::arange(count * rows * columns) + first).to(at::kByte).view({count, rows, columns});
}

// A folder of 3 training and 2 validation images of 2 × 4 pixels, with labels.
void write_idx_folder(const TempFolder& folder, const std::string& suffix = "", Compression compression = Compression::none) {
  write_idx(folder.path("train-images-idx3-ubyte" + suffix), counted(3, 2, 4), compression);
  write_idx(folder.path("train-labels-idx1-ubyte" + suffix), at::tensor({4, 5, 6}).to(at::kByte), compression);
  write_idx(folder.path("t10k-images-idx3-ubyte" + suffix), counted(2, 2, 4, 100), compression);
  write_idx(folder.path("t10k-labels-idx1-ubyte" + suffix), at::tensor({7, 8}).to(at::kByte), compression);
}

std::string cifar_record(char label, char byte) { return std::string(1, label) + std::string(3072, byte); }

std::string error_of_images(const TempFolder& folder) {
  return message_of<c10::ValueError>([&] { load_images(folder.path()); });
}

TEST(Images, ReadsAFolderOfIdxFiles) {
  for (const auto& [suffix, compression] : std::vector<std::pair<std::string, Compression>>{
           {"", Compression::none}, {".gz", Compression::gzip}, {".gz", Compression::none}, {"", Compression::gzip}}) {
    const TempFolder folder;
    write_idx_folder(folder, suffix, compression);
    const auto set = load_images(folder.path());
    EXPECT_EQ(set.height, 2);
    EXPECT_EQ(set.width, 4);
    EXPECT_EQ(set.channels, 1);
    EXPECT_EQ(set.sequence_len(), 7);
    EXPECT_TRUE(at::equal(set.training.pixels, counted(3, 2, 4).view({3, 8})));
    EXPECT_TRUE(at::equal(set.training.labels, at::tensor({4, 5, 6}).to(at::kByte)));
    EXPECT_TRUE(at::equal(set.validation.pixels, counted(2, 2, 4, 100).view({2, 8})));
    EXPECT_TRUE(at::equal(set.validation.labels, at::tensor({7, 8}).to(at::kByte)));
  }
}

TEST(Images, LabelsOfIdxImagesMayBeMissing) {
  const TempFolder folder;
  write_idx_folder(folder);
  std::filesystem::remove(folder.path("train-labels-idx1-ubyte"));
  const auto set = load_images(folder.path());
  EXPECT_FALSE(set.training.labels.defined());
  EXPECT_TRUE(set.validation.labels.defined());
}

TEST(Images, ReadsTheFileWithoutGzIfThereAreBoth) {
  const TempFolder folder;
  write_idx_folder(folder);
  folder.write("train-images-idx3-ubyte.gz", "not read");
  EXPECT_EQ(load_images(folder.path()).training.pixels.size(0), 3);
}

TEST(Images, ReadsAFolderOfCifar10FilesInTheOrderOfTheirNumbers) {
  const TempFolder folder;
  folder.write("data_batch_10.bin", cifar_record(3, 30));
  folder.write("data_batch_2.bin.gz", gzip_of(cifar_record(2, 20) + cifar_record(4, 21)));
  folder.write("data_batch_1.bin", cifar_record(1, 10));
  folder.write("data_batch_x.bin", "not read");
  folder.write("batches.meta.txt", "not read");
  folder.write("test_batch.bin", cifar_record(9, 90));
  const auto set = load_images(folder.path());
  EXPECT_EQ(set.height, 32);
  EXPECT_EQ(set.width, 32);
  EXPECT_EQ(set.channels, 3);
  EXPECT_EQ(set.sequence_len(), 3071);
  EXPECT_TRUE(at::equal(set.training.labels, at::tensor({1, 2, 4, 3}).to(at::kByte)));
  EXPECT_EQ(set.training.pixels.sizes(), (at::IntArrayRef{4, 3072}));
  EXPECT_TRUE(at::equal(set.training.pixels.select(1, 3071), at::tensor({10, 20, 21, 30}).to(at::kByte)));
  EXPECT_TRUE(at::equal(set.validation.labels, at::tensor({9}).to(at::kByte)));
}

TEST(Images, TheBytesOfAColourPixelFollowEachOther) {
  const TempFolder folder;
  const auto channels = std::string(1, '\0') + std::string(1024, 'r') + std::string(1024, 'g') + std::string(1024, 'b');
  folder.write("data_batch_1.bin", channels);
  folder.write("test_batch.bin", channels);
  const auto pixels = load_images(folder.path()).training.pixels;
  EXPECT_TRUE(at::equal(pixels[0].view({1024, 3}), at::tensor({'r', 'g', 'b'}).to(at::kByte).expand({1024, 3})));
}

TEST(Images, TheContentsOfAFileSayWhatItsFormatIs) {
  const TempFolder folder;
  write_idx(folder.path("data_batch_1.bin"), counted(3, 2, 4));
  write_idx(folder.path("test_batch.bin"), counted(2, 2, 4));
  EXPECT_EQ(load_images(folder.path()).training.pixels.sizes(), (at::IntArrayRef{3, 8}));
  write_idx(folder.path("data_batch_2.bin"), counted(3, 2, 4));
  EXPECT_CONTAINS(error_of_images(folder),
                  folder.path("data_batch_1.bin") + ": an IDX file, expected one file of images instead of 2");
}

TEST(Images, NamesWhatIsMissing) {
  const TempFolder folder;
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { load_images(folder.path("none")); }), "/none: there is no such folder");
  EXPECT_CONTAINS(error_of_images(folder),
                  folder.path() + ": no training images, expected train-images-idx3-ubyte, or data_batch_1.bin");
  write_idx(folder.path("train-images-idx3-ubyte"), counted(3, 2, 4));
  EXPECT_CONTAINS(error_of_images(folder),
                  folder.path() + ": no validation images, expected t10k-images-idx3-ubyte or test_batch.bin");
}

TEST(Images, RefusesTwoSetsInOneFolder) {
  const TempFolder folder;
  write_idx_folder(folder);
  folder.write("test_batch.bin", cifar_record(0, 0));
  EXPECT_CONTAINS(error_of_images(folder), "validation images are both in ");
  folder.write("data_batch_1.bin", cifar_record(0, 0));
  EXPECT_CONTAINS(error_of_images(folder), "training images are both in ");
}

TEST(Images, RefusesPartsThatDisagree) {
  const TempFolder folder;
  write_idx_folder(folder);
  write_idx(folder.path("train-labels-idx1-ubyte"), at::zeros({4}, at::kByte));
  EXPECT_CONTAINS(error_of_images(folder),
                  folder.path("train-labels-idx1-ubyte") + ": 4 labels, expected 3, the number of images in");
  write_idx(folder.path("train-labels-idx1-ubyte"), at::zeros({3}, at::kByte));
  write_idx(folder.path("t10k-images-idx3-ubyte"), counted(2, 4, 2));
  EXPECT_CONTAINS(error_of_images(folder),
                  "t10k-images-idx3-ubyte: images of [4, 2, 1] (height, width, channels), expected [2, 4, 1]");
}

TEST(Images, RefusesLabelsBesideRecordsThatHaveLabels) {
  const TempFolder folder;
  folder.write("data_batch_1.bin", cifar_record(0, 0));
  folder.write("test_batch.bin", cifar_record(0, 0));
  write_idx(folder.path("train-labels-idx1-ubyte"), at::zeros({1}, at::kByte));
  EXPECT_CONTAINS(error_of_images(folder), "train-labels-idx1-ubyte: a file of labels, but ");
}

TEST(Images, RefusesImagesOfOneByte) {
  const TempFolder folder;
  write_idx(folder.path("train-images-idx3-ubyte"), counted(3, 1, 1));
  write_idx(folder.path("t10k-images-idx3-ubyte"), counted(3, 1, 1));
  EXPECT_CONTAINS(error_of_images(folder), "train-images-idx3-ubyte: images of one byte, expected at least two");
}

TEST(Images, ABatchHasEachByteAsTheTargetOfTheByteBeforeIt) {
  const auto pixels = counted(4, 1, 3, 250).view({4, 3});  // 250 … 255, 0 … 5
  const auto batch = image_batch(pixels, at::tensor({2, 0, 2}, at::kLong));
  EXPECT_EQ(batch.inputs.scalar_type(), at::kLong);
  EXPECT_EQ(batch.targets.scalar_type(), at::kLong);
  EXPECT_TRUE(at::equal(batch.inputs, at::tensor({0, 1, 250, 251, 0, 1}, at::kLong).view({3, 2})));
  EXPECT_TRUE(at::equal(batch.targets, at::tensor({1, 2, 251, 252, 1, 2}, at::kLong).view({3, 2})));
  EXPECT_TRUE(batch.inputs.is_contiguous() && batch.targets.is_contiguous());
}

TEST(Images, RefusesWrongIndicesAndPixels) {
  const auto pixels = counted(4, 1, 3).view({4, 3});
  const auto error = [&](const at::Tensor& of, const at::Tensor& indices) {
    return message_of<c10::ValueError>([&] { image_batch(of, indices); });
  };
  EXPECT_CONTAINS(error(pixels, at::tensor({0, 4}, at::kLong)), "indices from 0 to 4, expected 0 to 3");
  EXPECT_CONTAINS(error(pixels, at::tensor({-1, 0}, at::kLong)), "indices from -1 to 0, expected 0 to 3");
  EXPECT_CONTAINS(error(pixels, at::tensor({0}, at::kInt)), "indices are Int [1], expected Long");
  EXPECT_CONTAINS(error(pixels, at::zeros({0}, at::kLong)), "indices are Long [0]");
  EXPECT_CONTAINS(error(pixels.to(at::kLong), at::tensor({0}, at::kLong)), "pixels are Long [4, 3], expected Byte");
  EXPECT_CONTAINS(error(pixels.flatten(), at::tensor({0}, at::kLong)), "pixels are Byte [12]");
}

}  // namespace
}  // namespace experiments
