"""What each operation does: data in, an answer out. Who may context, and what is well formed, was decided before."""
