module sums

go 1.21
