// An input that is one picture (edgekit/processing/inputs/image.py).
#include <algorithm>
#include <cfloat>
#include <cmath>

#include "card.h"
#include "refusal.h"
#include "text.h"

namespace edgekit {
namespace {

constexpr int64_t CROPPED_SIDE_LIMIT = 1 << 16;  // of a picture's shorter side before a crop
constexpr int64_t INPUT_SIDE_LIMIT = 1 << 16;  // of an input: a picture of 4 GB has no larger one

struct OnlyWith {
  const char* key;
  std::vector<std::string> modes;
};

bool contains(const std::vector<std::string>& list, const std::string& text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

double short_value(double value) { return std::nearbyint(value * 1e4) / 1e4; }

// Refuse mean and std in units of 0 to 1: of pixels from 0 to 255 no mean is between 0 and 1.
void refuse_unit_scale(const Table& table, const std::vector<double>& mean, const std::vector<double>& std) {
  double largest_std = *std::max_element(std.begin(), std.end()),
         largest_mean = *std::max_element(mean.begin(), mean.end());
  bool is_small = table.has("std") ? largest_std < 1 : largest_mean > 0;
  double least_std = *std::min_element(std.begin(), std.end()),
         least_mean = *std::min_element(mean.begin(), mean.end());
  if (!is_small || least_mean < 0 || largest_mean > 1 || least_std <= 0) return;
  bool any_mean = std::any_of(mean.begin(), mean.end(), [](double m) { return m != 0; });
  bool inverse = largest_std < 0.05 && !any_mean;
  std::vector<double> means, stds;
  for (double m : mean) means.push_back(short_value(m * 255));
  for (double s : std) stds.push_back(short_value(inverse ? 1 / s : s * 255));
  std::vector<std::string> lines;
  for (auto [key, values] : {std::pair("mean = ", &means), std::pair("std = ", &stds)}) {
    if (std::any_of(values->begin(), values->end(), [](double v) { return v != 0; }))
      lines.push_back(key + list_text(*values));
  }
  table.refuse(std::string(table.has("std") ? ".std " : ".mean ") +
               (inverse ? "is a factor, but pixels are divided by std"
                        : "is in units of 0 to 1, but pixels are 0 to 255") +
               ": write " + joined(lines, " and "));
}

}  // namespace

int64_t ImageInput::shorter_side() const {
  return static_cast<int64_t>(std::nearbyint(std::min(std::min(width, height) / crop, 9007199254740992.0)));
}

bool ImageInput::plain() const {
  auto zero = [](double m) { return m == 0; };
  auto one = [](double s) { return s == 1; };
  return std::all_of(mean.begin(), mean.end(), zero) && std::all_of(std.begin(), std.end(), one) &&
         dtype != "int8";
}

ImageInput read_image(const std::string& name, const Json& json, const std::string& where,
                      std::vector<int64_t>& shape) {
  Table table(json, where);
  table.only({"kind", "shape", "layout", "colour", "resize", "place", "pad", "rounding", "crop",
              "interpolation", "antialias", "mean", "std", "dtype"});
  ImageInput image;
  image.name = name;
  shape = table.shape();
  image.layout = table.choice("layout", {"NCHW", "NHWC"});
  image.colour = table.choice("colour", {"RGB", "BGR", "GREY"});
  image.resize = table.choice("resize", {"stretch", "letterbox", "center-crop", "resize-crop", "fit-height"});
  if (table.has("place")) image.place = table.choice("place", {"top-left", "center"});
  if (table.has("rounding")) image.rounding = table.choice("rounding", {"down", "nearest"});
  if (table.has("interpolation")) image.interpolation = table.choice("interpolation", {"linear", "cubic"});
  if (table.has("dtype")) {
    image.dtype =
        table.choice("dtype", {"float32", "float16", "uint8", "int8", "uint16", "int16", "int32", "int64"});
  }
  int64_t pad = table.has("pad") ? table.whole("pad") : 0;
  if (table.has("crop")) image.crop = table.real("crop");
  if (table.has("antialias")) image.antialias = table.truth("antialias");
  static const OnlyWith ONLY_WITH[] = {{"place", {"letterbox"}},
                                       {"pad", {"letterbox", "fit-height"}},
                                       {"rounding", {"letterbox", "resize-crop"}},
                                       {"crop", {"center-crop", "resize-crop"}}};
  for (const OnlyWith& one : ONLY_WITH) {
    if (table.has(one.key) && !contains(one.modes, image.resize)) {
      std::vector<std::string> wanted;
      for (const std::string& mode : one.modes) wanted.push_back(ascii_text(mode));
      table.refuse(std::string(".") + one.key + " needs resize = " + joined(wanted, " or ") +
                   ", but resize is " + ascii_text(image.resize));
    }
  }
  if (pad < 0 || pad > 255)
    table.refuse(".pad is " + table.get("pad", Json::whole).content + "; it must be from 0 to 255");
  image.pad = static_cast<int>(pad);
  if (!(image.crop > 0 && image.crop <= 1)) {
    table.refuse(".crop is " + short_text(image.crop) + "; it must be above 0 and at most 1");
  }
  if (shape.size() != 4 || shape[0] != 1) {
    table.refuse(".shape is " + list_text(shape) + "; it must have 4 dimensions, the first being 1");
  }
  size_t at = image.layout == "NCHW" ? 1 : 3;
  image.channels = image.colour == "GREY" ? 1 : 3;
  if (shape[at] != image.channels) {
    table.refuse(".shape is " + list_text(shape) + "; " + image.colour + " in " + image.layout + " has " +
                 std::to_string(image.channels) + " at dimension " + std::to_string(at));
  }
  int64_t height = shape[at == 1 ? 2 : 1], width = shape[at == 1 ? 3 : 2];
  if (height > INPUT_SIDE_LIMIT || width > INPUT_SIDE_LIMIT) {
    table.refuse(".shape is " + list_text(shape) + "; libedgekit makes pictures of at most " +
                 std::to_string(INPUT_SIDE_LIMIT) + " pixels a side");
  }
  image.height = static_cast<int>(height), image.width = static_cast<int>(width);
  image.mean = table.has("mean") ? table.reals("mean") : std::vector<double>(image.channels, 0.0);
  image.std = table.has("std") ? table.reals("std") : std::vector<double>(image.channels, 1.0);
  for (auto [key, values] : {std::pair("mean", &image.mean), std::pair("std", &image.std)}) {
    if (values->size() != static_cast<size_t>(image.channels)) {
      table.refuse(std::string(".") + key + " has " + std::to_string(values->size()) + " numbers, but " +
                   image.colour + " has " + std::to_string(image.channels) + " channels");
    }
  }
  refuse_unit_scale(table, image.mean, image.std);
  double least = *std::min_element(image.std.begin(), image.std.end()), most = 0;
  for (double m : image.mean) most = std::max(most, std::fabs(m));
  if (least <= 0)
    table.refuse(".std is " + list_text(image.std) + "; pixels are divided by it: it must be above 0");
  if ((255 + most) / least > FLT_MAX)
    table.refuse(": (pixel - mean) / std is beyond float32; correct mean or std");
  int64_t side = image.shorter_side(), longest = std::max(image.height, image.width);
  if (image.resize == "resize-crop" && !(longest <= side && side <= CROPPED_SIDE_LIMIT)) {
    table.refuse(".crop is " + short_text(image.crop) + ", which scales pictures to a shorter side of " +
                 std::to_string(side) + "; it must be from " + std::to_string(longest) +
                 ", the input's longer side, to " + std::to_string(CROPPED_SIDE_LIMIT));
  }
  return image;
}

}  // namespace edgekit
