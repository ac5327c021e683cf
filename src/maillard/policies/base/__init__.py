"""What policies are made of: the contract, its three shapes, and the parameters that several share."""
