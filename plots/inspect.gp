# Magnitudes of the values in tensor files against the limits of one format at one scale.
# The data: exponent e, percent of the finite non-zero values in [2^e, 2^(e+1)).
set key off
set lmargin at screen px(64)
set rmargin at screen px(width - 24)
set tmargin at screen py(84)
set bmargin at screen py(height - 58)
set label 1 'Magnitudes in '.subject at screen px(24), screen py(22) noenhanced font title_font \
    textcolor rgb ink
set label 2 detail at screen px(24), screen py(46) noenhanced font small_font textcolor rgb soft
set label 3 advice at screen px(24), screen py(66) noenhanced font small_font textcolor rgb ink
set label 4 'magnitude of the stored value' at graph 0.5, screen py(height - 16) center noenhanced \
    font small_font textcolor rgb soft
set xrange [low:high]
set yrange [0:top_percent * 1.25]
set xtics 10 * ceil(low / 10.0), (high - low > 100 ? 20 : 5)
set format x '2^{%g}'
set format y '%g %%'
if (flush_limit > low) {
    set object 1 rectangle from low, graph 0 to flush_limit, graph 1 behind \
        fillcolor rgb vermillion fillstyle solid 0.22 noborder
    set label 5 'flushed to 0, up to '.power(flush_limit) at 0.5*(low+flush_limit), graph 0.95 center \
        noenhanced font tiny_font textcolor rgb vermillion
}
if (normal_limit > flush_limit) {
    set object 2 rectangle from flush_limit, graph 0 to normal_limit, graph 1 behind \
        fillcolor rgb orange fillstyle solid 0.14 noborder
    set label 6 'subnormal' at 0.5*(flush_limit+normal_limit), graph 0.95 center noenhanced font tiny_font \
        textcolor rgb '#a06a00'
}
set label 7 format_name.' normal' at 0.5*(normal_limit+max_limit), graph 0.95 center noenhanced \
    font tiny_font textcolor rgb soft
if (max_limit < high) {
    set object 3 rectangle from max_limit, graph 0 to high, graph 1 behind \
        fillcolor rgb purple fillstyle solid 0.30 noborder
    set label 8 'overflow' at 0.5*(max_limit+high), graph 0.95 center noenhanced \
        font tiny_font textcolor rgb '#a0527d'
}
plot data using 1:2 with fillsteps fillcolor rgb blue fillstyle transparent solid 0.30 noborder, \
     data using 1:2 with steps linecolor rgb blue linewidth 2
