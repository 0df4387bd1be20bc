"""Quaternions against scipy; the rest of the module is tested where its papers use it."""

import torch
from scipy.spatial.transform import Rotation

from icml24.common.rotations import quaternion_rotation


def test_unit_quaternions_give_scipys_rotations():
    q = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    q = q / q.norm(dim=-1, keepdim=True)
    w, v = q[..., :1], q[..., 1:]
    ours = quaternion_rotation(q)
    theirs = Rotation.from_quat(torch.cat((v, w), dim=-1).reshape(-1, 4).numpy()).as_matrix()
    torch.testing.assert_close(ours.reshape(-1, 3, 3), torch.from_numpy(theirs), rtol=0, atol=1e-14)
