"""The Laplace approximation of a tanh network of one hidden layer, written out in numpy.

Weights are ((W, b), (W, b)) with W (inputs, outputs). Matrices over weights are in the order of PyTorch: per layer the
transposed W by rows, then b. The precision is H / sigma^2 + precision I with the sum of curvatures H over the data.
"""

import numpy as np


def layers(weights, x):
    """Outputs, and per layer its inputs and the derivative of the outputs by its pre-activations: (n, i), (n, k, o)."""
    (first, offset), (second, last) = weights
    hidden = np.tanh(x @ first + offset)
    outputs = hidden @ second + last
    ones = np.broadcast_to(np.eye(second.shape[1]), (len(x), second.shape[1], second.shape[1]))
    back = np.einsum("jk,nj->nkj", second, 1 - hidden**2)
    return outputs, [(x, back), (hidden, ones)]


def jacobian(parts):
    """Jacobian of the outputs, (points, outputs, weights)."""
    columns = []
    for inputs, back in parts:
        columns += [np.einsum("nko,ni->nkoi", back, inputs).reshape(*back.shape[:2], -1), back]
    return np.concatenate(columns, -1)


def softmax(f):
    shares = np.exp(f - f.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)


def output_curvature(kind, outputs):
    """Second derivatives of -sigma^2 log p(y | f): the identity, or diag(p) - p p'."""
    if kind == "regression":
        return np.broadcast_to(np.eye(outputs.shape[1]), (*outputs.shape, outputs.shape[1]))
    shares = softmax(outputs)
    return np.einsum("nk,kl->nkl", shares, np.eye(shares.shape[1])) - shares[:, :, None] * shares[:, None]


def factors(parts, middle):
    """Kronecker factors: per layer A = sum a a' / N and B = sum G' L G."""
    return [
        (inputs.T @ inputs / len(inputs), np.einsum("nko,nkl,nlp->op", back, middle, back)) for inputs, back in parts
    ]


def curvature(structure, parts, middle):
    """H, dense: Kronecker is B (x) A for the weights of a layer and B alone for its bias."""
    if structure == "kron":
        blocks = [block for a, b in factors(parts, middle) for block in (np.kron(b, a), b)]
        size = sum(map(len, blocks))
        found, at = np.zeros((size, size)), 0
        for block in blocks:
            found[at : at + len(block), at : at + len(block)] = block
            at += len(block)
        return found
    rows = jacobian(parts)
    full = np.einsum("nkp,nkl,nlq->pq", rows, middle, rows)
    return full if structure == "full" else np.diag(np.diag(full))


def log_likelihood(kind, outputs, y, sigma):
    """Log likelihood with all constants."""
    if kind == "regression":
        return -((y - outputs) ** 2).sum() / (2 * sigma**2) - y.size * np.log(sigma * np.sqrt(2 * np.pi))
    return np.log(softmax(outputs)[np.arange(len(y)), y]).sum()


def laplace(problem, structure, subset):
    """Log evidence, its derivatives by log precision and log sigma, outputs and covariances (points, k, k)."""
    kind, sigma, precision = problem["kind"], problem["sigma"], problem["precision"]
    keep = slice(-1, None) if subset == "last_layer" else slice(None)
    outputs, parts = layers(problem["weights"], problem["x"])
    mean = np.concatenate([np.ravel(part) for w, b in problem["weights"][keep] for part in (w, b)])
    hessian = curvature(structure, parts[keep], output_curvature(kind, outputs))
    roots = np.linalg.eigvalsh(hessian) / sigma**2
    square = precision * mean @ mean
    evidence = log_likelihood(kind, outputs, problem["y"], sigma) - 0.5 * square
    evidence -= 0.5 * np.log1p(roots / precision).sum()
    slopes = {"log_precision": 0.5 * ((roots / (roots + precision)).sum() - square)}
    if kind == "regression":
        misfit = ((problem["y"] - outputs) ** 2).sum() / sigma**2
        slopes["log_sigma"] = misfit - outputs.size + (roots / (roots + precision)).sum()
    outputs, parts = layers(problem["weights"], problem["test"])
    rows = jacobian(parts[keep])
    covariance = np.linalg.inv(hessian / sigma**2 + precision * np.eye(len(mean)))
    return evidence, slopes, outputs, np.einsum("nkp,pq,nlq->nkl", rows, covariance, rows)


def probit(outputs, covariance):
    """Probit approximation: softmax of f / sqrt(1 + pi/8 var f), each output with its own variance."""
    return softmax(outputs / np.sqrt(1 + np.pi / 8 * np.diagonal(covariance, axis1=1, axis2=2)))


def bridge(outputs, covariance, normed=False):
    """Mean of the Dirichlet of the Laplace bridge, for the normal conditioned on outputs of sum zero."""
    side, total = covariance.sum(-1), covariance.sum((1, 2))[:, None]
    outputs = outputs - side * outputs.sum(-1, keepdims=True) / total
    spread = np.diagonal(covariance - side[:, :, None] * side[:, None] / total[:, :, None], axis1=1, axis2=2)
    classes = outputs.shape[1]
    if normed:
        scale = spread.mean(1, keepdims=True) / np.sqrt(classes / 2)
        outputs, spread = outputs / np.sqrt(scale), spread / scale
    alpha = 1 - 2 / classes + np.exp(outputs) / classes**2 * np.exp(-outputs).sum(1, keepdims=True)
    alpha = alpha / spread
    return alpha / alpha.sum(1, keepdims=True)
