"""The draft's tree: building it, verifying it against the target, and what is left of it.

A request's tree has `nodes` tokens; node 0 is the last token that was accepted, the others are drafted.
The "retrieve" tensors [batch, nodes] describe it: each node's index in the flat batch, its first child and its next
sibling, as node numbers, -1 for none.
"""

# ruff: noqa: ARG001, PLR0917 - the parameters are the operators'

from __future__ import annotations

import torch  # type: ignore[import-not-found]
from torch import Tensor

FULL_MASK = 0  # tree_mask_mode: the mask has columns for the tokens before the tree as well


def build_tree_kernel_efficient_cpu(
    parent_list: Tensor,
    selected_index: Tensor,
    seq_lens: Tensor,
    tree_mask: Tensor,
    positions: Tensor,
    retrieve_index: Tensor,
    retrieve_next_token: Tensor,
    retrieve_next_sibling: Tensor,
    topk: int,
    depth: int,
    draft_token_num: int,
    tree_mask_mode: int,
) -> None:
    """Fill the tree's description from the drafted candidates.

    selected_index [batch, nodes - 1] are the chosen candidates, numbered through; candidate c grew out of entry
    c // topk of parent_list [batch, ...], where entry 0 is the root. tree_mask is one block a request, laid end to
    end: [nodes, (tokens before +) nodes], true where a node sees another. positions [batch * nodes] count from the
    text's beginning.
    """
    nodes, offset = draft_token_num, 0
    mask = tree_mask.view(-1)
    index, child, sibling = (t.view(-1, nodes) for t in (retrieve_index, retrieve_next_token, retrieve_next_sibling))
    position = positions.view(-1, nodes)
    for b, length in enumerate(seq_lens.tolist()):
        parents = _parents(selected_index[b].tolist(), parent_list[b].tolist() if parent_list.numel() else [], topk)
        children, siblings = _links(parents)
        index[b] = torch.arange(b * nodes, (b + 1) * nodes, dtype=index.dtype)
        child[b] = torch.tensor(children, dtype=child.dtype)
        sibling[b] = torch.tensor(siblings, dtype=sibling.dtype)
        width = length + nodes if int(tree_mask_mode) == FULL_MASK else nodes
        block = mask[offset : offset + nodes * width].view(nodes, width)[:, width - nodes :]
        offset += nodes * width
        block.zero_()
        for node in range(nodes):
            ancestors = _ancestors(node, parents)
            block[node, [0, *ancestors]] = 1
            position[b, node] = length + len(ancestors)


def _parents(selected: list[int], parent_list: list[int], topk: int) -> list[int]:
    """Each node's parent, as a node; the root is its own."""
    parents = [0]
    for candidate in selected:
        entry = candidate // topk
        parents.append(selected.index(parent_list[entry]) + 1 if entry else 0)
    return parents


def _links(parents: list[int]) -> tuple[list[int], list[int]]:
    """Each node's first child and next sibling."""
    children, siblings = [-1] * len(parents), [-1] * len(parents)
    for node in range(len(parents) - 1, 0, -1):
        siblings[node] = children[parents[node]]
        children[parents[node]] = node
    return children, siblings


def _ancestors(node: int, parents: list[int]) -> list[int]:
    """The node and what lies between it and the root."""
    path = []
    while node:
        path.append(node)
        node = parents[node]
    return path


def verify_tree_greedy_cpu(
    predicts: Tensor,
    accept_index: Tensor,
    accept_token_num: Tensor,
    candidates: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    target_predict: Tensor,
) -> None:
    """Walk each tree along the target's own choices; what the walk passes is accepted.

    candidates [batch, nodes] are the drafted tokens, target_predict [batch, nodes] what the target would say behind
    each node. Results: predicts [batch * nodes], the target's token behind each accepted node; accept_index
    [batch, steps + 1], the accepted nodes by flat index; accept_token_num [batch], how many drafted ones.
    """
    wanted = target_predict.reshape(-1).tolist()
    for b in range(candidates.shape[0]):
        tokens, flat = candidates[b].tolist(), retrive_index[b].tolist()
        child, sibling = retrive_next_token[b].tolist(), retrive_next_sibling[b].tolist()
        node, accepted, last = 0, 0, flat[0]
        accept_index[b, 0] = last
        for _ in range(1, accept_index.shape[1]):
            node = child[node]
            while node != -1 and tokens[node] != wanted[last]:
                node = sibling[node]
            if node == -1:
                break
            predicts[last] = wanted[last]
            accepted += 1
            last = flat[node]
            accept_index[b, accepted] = last
        accept_token_num[b] = accepted
        predicts[last] = wanted[last]


def fill_bonus_tokens_cpu(accept_tokens: Tensor, accept_lens: Tensor, bonus_tokens: Tensor, accept_stride: int) -> None:
    """Each request's last accepted token: accept_tokens [batch * accept_stride], accept_lens [batch] -> [batch]."""
    index = torch.arange(accept_lens.shape[0]) * accept_stride + accept_lens.long() - 1
    bonus_tokens.copy_(accept_tokens.view(-1)[index].to(bonus_tokens.dtype))


def fill_accept_out_cache_loc_cpu(accept_index: Tensor, out_cache_loc: Tensor, accept_out_cache_loc: Tensor) -> None:
    """The cache slots of the accepted nodes (accept_index is -1 elsewhere), moved to the front."""
    flat = accept_index.view(-1)
    accepted = flat[flat > -1].long()
    accept_out_cache_loc[: accepted.shape[0]] = out_cache_loc[accepted]


def rotate_input_ids_cpu(
    input_ids: Tensor,
    extend_start_loc: Tensor,
    extend_seq_lens: Tensor,
    topk_index: Tensor,
    select_index: Tensor | None = None,
) -> None:
    """Shift each request's tokens one to the left and put its next token, topk_index[i], at the end.

    The end is the request's last place, or select_index[i].
    """
    sizes = zip(extend_start_loc.tolist(), extend_seq_lens.tolist(), strict=True)
    for i, (start, length) in enumerate(sizes):
        input_ids[start : start + length - 1] = input_ids[start + 1 : start + length].clone()
        end = start + length - 1 if select_index is None else int(select_index[i])
        input_ids[end] = topk_index.view(-1)[i]
