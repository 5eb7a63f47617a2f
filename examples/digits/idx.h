// Reads IDX files, the format of MNIST and of many data sets after it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace digits {

struct Dataset {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::vector<std::uint8_t> pixels;  // images one after the other, each row by row
  std::vector<std::uint8_t> labels;  // one for each image
  std::uint8_t brightest = 0;        // greatest pixel: 255 in MNIST, 16 in the digits shipped here

  std::size_t size() const { return labels.size(); }
  std::size_t pixels_per_image() const { return rows * columns; }
  std::size_t classes() const;  // labels are 0 to classes() - 1
};

/// Reads gzip-compressed images and labels, of any number and size. Throws tutti::Error, which
/// names the file and what is wrong with it: `usage` for a file with other contents, `corrupt` for
/// one that is cut short or damaged.
Dataset load(const std::string& images_path, const std::string& labels_path);

}  // namespace digits
