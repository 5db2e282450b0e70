// ImageSet: images as sequences of bytes, for models that generate an image byte by byte.
//
//   const auto set = load_images("/data/mnist");
//   const auto batch = image_batch(set.training.pixels, indices);  // indices: int64 [B]
//
// load_images() accepts a folder with files of these names. Each may be compressed with gzip, with or without ".gz" at the end of
// its name. If a file is there with and without ".gz", the one without is read.
//
//   | role              | names                                                        |
//   |-------------------|--------------------------------------------------------------|
//   | training images   | train-images-idx3-ubyte, or data_batch_NUMBER.bin (1 or more) |
//   | training labels   | train-labels-idx1-ubyte (optional)                           |
//   | validation images | t10k-images-idx3-ubyte, or test_batch.bin                    |
//   | validation labels | t10k-labels-idx1-ubyte (optional)                            |
//
// These are the names that MNIST and CIFAR-10 (binary version) are published with. The name of a file says what its role is, and
// its contents say what its format is: a file that begins with the bytes 00 00 08 is an IDX file (idx.h), and every other file
// has records of CIFAR-10 (cifar10.h), whose labels are part of the records.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace experiments {

struct ImagePart {
  // uint8 [count, T+1], T+1 = height · width · channels. The bytes of an image in raster order: row by row, in a row pixel by
  // pixel, in a pixel red, green, blue.
  at::Tensor pixels;
  at::Tensor labels;  // uint8 [count]; undefined if the folder has no labels
};

struct ImageSet {
  int64_t height = 0, width = 0, channels = 0;  // 1 channel for IDX, 3 for CIFAR-10
  ImagePart training, validation;

  // T, the length of the sequences that a model reads: all bytes of an image but one.
  int64_t sequence_len() const { return height * width * channels - 1; }
};

// Throws c10::ValueError, naming the file or the folder, if images are missing, if the folder has training images under both
// names, if a file is not valid, if labels and images differ in number, or if training and validation images differ in size.
// Throws also for images of one byte, which have nothing to predict.
ImageSet load_images(const std::string& folder);

struct ImageBatch {
  at::Tensor inputs;   // int64 [B, T]: all bytes but the last
  at::Tensor targets;  // int64 [B, T]: all bytes but the first, so that targets[b, t] follows inputs[b, t]
};

// The images at `indices` (int64 [B]) of `pixels` (uint8 [count, T+1]). Throws c10::ValueError if the dtype or the shape of an
// argument differs, or if an index is not in 0…count-1.
ImageBatch image_batch(const at::Tensor& pixels, const at::Tensor& indices);

}  // namespace experiments
