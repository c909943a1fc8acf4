"""Forms in which other systems export judgements, one file each."""
