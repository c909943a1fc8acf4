"""The commands of ``murmuration deploy``, in files of their own."""
