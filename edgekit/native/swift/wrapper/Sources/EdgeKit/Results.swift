import CEdgeKit
import Foundation

/// A call of libedgekit failed. The text says what, where, why and what to do.
public struct EdgeKitError: LocalizedError, CustomStringConvertible {
    public let description: String
    public var errorDescription: String? { description }

    /// Return the reason of the call that failed on this thread.
    static func last() -> EdgeKitError { EdgeKitError(description: String(cString: edgekit_error())) }
}

/// Order of a picture's channels; the numbers are those of edgekit.h.
public enum ChannelOrder: Int32, Sendable {
    case rgb = 0
    case bgr = 1
}

/// Corners of a box, in pixels of the picture.
public struct Box: Hashable, Sendable {
    public let left, top, right, bottom: Float

    public var rectangle: CGRect {
        CGRect(x: CGFloat(left), y: CGFloat(top), width: CGFloat(right - left), height: CGFloat(bottom - top))
    }
}

/// One class, one object with its box, or speech (index 1) or none (0). The score is from 0 to 1.
public struct Item: Hashable, Sendable {
    public let index: Int
    public let label: String
    public let score: Float
    public let box: Box?
}

/// Result of a task, best first. `kind` is the card's: "classify", "detect" or "voice-activity".
public struct Prediction: Hashable, Sendable {
    public let kind: String
    public let items: [Item]

    init(_ prediction: edgekit_prediction) {
        let name = String(cString: prediction.kind)
        kind = name
        items = UnsafeBufferPointer(start: prediction.items, count: prediction.count).map { item in
            let (left, top, right, bottom) = item.box
            return Item(
                index: Int(item.index), label: String(cString: item.label), score: item.score,
                box: name == "detect" ? Box(left: left, top: top, right: right, bottom: bottom) : nil)
        }
    }
}

/// Result of a window of a sound, and its start and end in seconds.
public struct Window: Hashable, Sendable {
    public let start, end: Double
    public let prediction: Prediction

    init(_ made: edgekit_prediction) {
        start = made.start_s
        end = made.end_s
        prediction = Prediction(made)
    }
}

/// One variant of a bundle, with its status as the build wrote it.
public struct Variant: Hashable, Sendable {
    public let name, target, profile, precision, status: String

    init(_ variant: edgekit_variant) {
        name = String(cString: variant.name)
        target = String(cString: variant.target)
        profile = String(cString: variant.profile)
        precision = String(cString: variant.precision)
        status = String(cString: variant.status)
    }
}

/// One fallback: from a better variant to the next one that was tried, and why.
public struct Fallback: Hashable, Sendable {
    public let from, to, reason: String

    init(_ fallback: edgekit_fallback) {
        from = String(cString: fallback.from)
        to = String(cString: fallback.to)
        reason = String(cString: fallback.reason)
    }
}

/// Name, dtype (by numpy's name) and shape of an input or output; -1 is a dimension that depends on the data.
public struct TensorSpec: Hashable, Sendable {
    public let name, dtype: String
    public let shape: [Int]

    init(_ tensor: edgekit_tensor) {
        name = String(cString: tensor.name)
        dtype = String(cString: tensor.dtype)
        shape = tensor.sizes
    }
}

/// An array: its dtype by numpy's name, its shape, and its values in the byte order of the processor.
public struct Tensor: Hashable, Sendable {
    public let dtype: String
    public let shape: [Int]
    public let data: Data

    public init(dtype: String, shape: [Int], data: Data) {
        self.dtype = dtype
        self.shape = shape
        self.data = data
    }
}

extension edgekit_tensor {
    /// Sizes of its dimensions; a setter needs at most EDGEKIT_RANK_LIMIT of them.
    var sizes: [Int] {
        get {
            let count = Int(rank)
            return withUnsafeBytes(of: shape) { Array($0.bindMemory(to: Int64.self).prefix(count)).map { Int($0) } }
        }
        set {
            rank = Int32(newValue.count)
            let values = newValue.map { Int64($0) }
            withUnsafeMutableBytes(of: &shape) { place in values.withUnsafeBytes { place.copyMemory(from: $0) } }
        }
    }
}
